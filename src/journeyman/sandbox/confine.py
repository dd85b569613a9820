"""The start of a box that needs no namespace: this process gives up what it may do, and becomes the keeper of the box.

It is run by its path, and is never imported. Landlock takes away files, TCP and signals; a filter takes away calls of
the kernel. Nobody gets back what this gave up.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import sys

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_BELOW_A_PATH = 1
_LIBRARY = ctypes.CDLL(None, use_errno=True)


def draw_borders() -> None:
    """Draw the borders that a file describes, and run the keeper. The arguments: the file's number, then a program."""
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        borders = marshal.loads(file.read())
    require(_LIBRARY.prctl(_PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0))), "no_new_privs")
    restrict(borders["handled"], borders["rules"])
    install(borders["filter"])
    os.execv(sys.argv[2], sys.argv[2:])


def require(outcome: int, name: str) -> int:
    """Return what a call of the kernel did.

    Raises:
        OSError: it failed.
    """
    if outcome < 0:
        raise OSError(ctypes.get_errno(), f"this system refuses {name}")
    return outcome


def restrict(handled: list[int], rules: list[tuple[str, int]]) -> None:
    """Let Landlock allow what the rules name, and nothing else of what it handles."""

    def call(number: int, *arguments: bytes | ctypes.c_long | ctypes.c_ulong | ctypes.c_size_t) -> int:
        return require(_LIBRARY.syscall(ctypes.c_long(number), *arguments), "Landlock")

    attributes = b"".join(each.to_bytes(8, sys.byteorder) for each in handled)
    ruleset = call(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_ulong(0))
    for path, rights in rules:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = rights.to_bytes(8, sys.byteorder) + place.to_bytes(4, sys.byteorder)
        call(_ADD_RULE, ctypes.c_long(ruleset), ctypes.c_long(_BELOW_A_PATH), rule, ctypes.c_ulong(0))
        os.close(place)
    call(_RESTRICT_SELF, ctypes.c_long(ruleset), ctypes.c_ulong(0))
    os.close(ruleset)


class FilterProgram(ctypes.Structure):
    """A filter as the kernel takes it."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install(filter: bytes) -> None:
    """Have the kernel run a filter before each call."""
    given = ctypes.byref(FilterProgram(len(filter) // 8, filter))
    nothing = ctypes.c_ulong(0)
    require(_LIBRARY.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_FILTER), given, nothing, nothing), "the filter")


if __name__ == "__main__":
    draw_borders()
