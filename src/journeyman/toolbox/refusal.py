"""Why a ready tool did not do what it was asked: a text for the model, and a label for programs. Imports `errors`."""

from __future__ import annotations

from typing import Literal, TypeAlias

from journeyman.errors import Rejected

RefusalKind: TypeAlias = Literal[
    "outside",
    "invalid",
    "not_found",
    "not_a_text",
    "too_large",
    "not_read",
    "partly_read",
    "changed_since",
    "no_match",
    "ambiguous",
    "address",
    "unreachable",
    "timeout",
    "command_failed",
    "not_available",
]
"""Why not. These labels do not change.

`outside`: the path leads out of the workspace. `not_read`, `partly_read`, `changed_since`: the file must be read, or
read to its end, or read again, before it is changed. `no_match`, `ambiguous`: the text to replace is not there, or
there more than once. `address`: the host, or what it resolves to, must not be asked. `command_failed`: a command in the
background ended with an error. `not_available`: this run or this workspace has no such thing.
"""


class Refusal(Rejected):
    """A ready tool did not do it; the text says why, and what to do instead."""

    def __init__(self, kind: RefusalKind, text: str) -> None:
        super().__init__(text)
        self.kind: RefusalKind = kind
