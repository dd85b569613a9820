"""The box of a permission, for a workspace to run its commands in."""

from __future__ import annotations

from collections.abc import Iterator

from journeyman.permission.borders import rules_beyond
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
    """Give for each deny rule that no kernel can hold a sentence that says what holds instead. They are also logged,
    when a box of the permission is made first."""
    return rules_beyond(permission._rules)  # pyright: ignore[reportPrivateUsage] - of one room
