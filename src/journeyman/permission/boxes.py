"""The box of a permission, for a workspace to run its commands in."""

from __future__ import annotations

from collections.abc import Iterator

from journeyman.permission.borders import program_of
from journeyman.permission.permission import Permission
from journeyman.sandbox.box import Box


def make_box(permission: Permission) -> Box:
    """Return the box that the rules of a permission become, for the files that are there now: what a sandbox lets
    commands do. In the mode `plan` nothing may be changed in it.

    Raises:
        SandboxUnavailable: there are rules about paths, and more files than can be looked at.
    """
    return permission._borders()  # pyright: ignore[reportPrivateUsage] - of one room


def rules_beyond_box(permission: Permission) -> Iterator[str]:
    """Give for each deny rule that no kernel can hold a sentence that says what holds instead."""
    for rule in permission._rules.deny_rules:  # pyright: ignore[reportPrivateUsage] - of one room
        if rule.kind == "Bash" and program_of(rule) is None:
            yield (
                f"The rule {rule.text} is about the words of a command, which a box cannot hold. There it is held by"
                " what the command would need: no host and no key is there. Deny the program, the path or the host."
            )
