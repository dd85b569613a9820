"""The seccomp filter of a box: the calls of the kernel that no command needs and that lead out of it.

It is a program of classic BPF, which the kernel runs before each call. It refuses unix sockets and other families than
those of the internet, namespaces and mounts, bits that let a file run as its owner, and calls that a filter cannot look
into (`clone3`, `openat2`, io_uring), for which programs have another way. All else is allowed.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Mapping
from functools import cache
from typing import Final

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN, _AND = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54
_ALLOW: Final = 0x7FFF0000
_REFUSE: Final = 0x00050000 | errno.EPERM
_UNKNOWN: Final = 0x00050000 | errno.ENOSYS
_NO_PROTOCOL: Final = 0x00050000 | errno.EPROTONOSUPPORT  # as on a system without it: programs go on without audit
_NUMBER_AT, _MACHINE_AT, _ARGUMENTS_AT = 0, 4, 16
_X32: Final = 0x40000000

_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_NETLINK_ROUTE: Final = 0
_SOCK_STREAM, _KIND, _IPPROTO_TCP = 1, 0xF, 6
_NAMESPACES: Final = 0x7E020000 | 0x80  # CLONE_NEW*; the lowest bits of clone's own flags are a signal
_CLONE_NAMESPACES: Final = 0x7E020000
_SETUID_BITS: Final = 0o6000
_CREATES: Final = 0o100 | 0o20000000  # O_CREAT, and the bit of O_TMPFILE that is no O_DIRECTORY
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

_NEW: Final = {  # the same numbers on all machines
    **{"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429},
    **{"fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435, "openat2": 437},
    **{"mount_setattr": 442, "quotactl_fd": 443, "fchmodat2": 452, "open_tree_attr": 467},
}
_MACHINES: Final[Mapping[str, tuple[int, Mapping[str, int]]]] = {
    "x86_64": (
        0xC000003E,
        {
            **_NEW,
            **{"open": 2, "ioctl": 16, "socket": 41, "socketpair": 53, "clone": 56, "creat": 85, "chmod": 90},
            **{"fchmod": 91, "syslog": 103, "mknod": 133, "uselib": 134, "vhangup": 153, "pivot_root": 155},
            **{"adjtimex": 159, "chroot": 161, "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166},
            **{"swapon": 167, "swapoff": 168, "reboot": 169, "iopl": 172, "ioperm": 173, "init_module": 175},
            **{"delete_module": 176, "quotactl": 179, "lookup_dcookie": 212, "clock_settime": 227, "kexec_load": 246},
            **{"add_key": 248, "request_key": 249, "keyctl": 250, "openat": 257, "mknodat": 259, "fchmodat": 268},
            **{"unshare": 272, "perf_event_open": 298, "fanotify_init": 300, "name_to_handle_at": 303},
            **{"open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308, "finit_module": 313},
            **{"kexec_file_load": 320, "bpf": 321, "userfaultfd": 323},
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            **_NEW,
            **{"lookup_dcookie": 18, "ioctl": 29, "mknodat": 33, "umount2": 39, "mount": 40, "pivot_root": 41},
            **{"chroot": 51, "fchmod": 52, "fchmodat": 53, "openat": 56, "vhangup": 58, "quotactl": 60, "acct": 89},
            **{"unshare": 97, "kexec_load": 104, "init_module": 105, "delete_module": 106, "clock_settime": 112},
            **{"syslog": 116, "reboot": 142, "settimeofday": 170, "adjtimex": 171, "socket": 198, "socketpair": 199},
            **{"add_key": 217, "request_key": 218, "keyctl": 219, "clone": 220, "swapon": 224, "swapoff": 225},
            **{"perf_event_open": 241, "fanotify_init": 262, "name_to_handle_at": 264, "open_by_handle_at": 265},
            **{"clock_adjtime": 266, "setns": 268, "finit_module": 273, "bpf": 280, "userfaultfd": 282},
            **{"kexec_file_load": 294},
        },
    ),
}
_REFUSED: Final = (
    *("mount", "umount2", "pivot_root", "chroot", "setns", "move_mount", "open_tree", "open_tree_attr", "fsopen"),
    *("fsconfig", "fsmount", "fspick", "mount_setattr", "swapon", "swapoff", "reboot", "init_module", "finit_module"),
    *("delete_module", "kexec_load", "kexec_file_load", "quotactl", "quotactl_fd", "acct", "settimeofday"),
    *("clock_settime", "adjtimex", "clock_adjtime", "iopl", "ioperm", "syslog", "add_key", "request_key", "keyctl"),
    *("bpf", "perf_event_open", "userfaultfd", "name_to_handle_at", "open_by_handle_at", "lookup_dcookie"),
    *("fanotify_init", "vhangup", "uselib"),
)
_DENIED_AS_UNKNOWN: Final = ("clone3", "openat2", "io_uring_setup", "io_uring_enter", "io_uring_register")
_MODES: Final = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mknod": 1, "mknodat": 2}
"""The argument of each call that is the mode which a file gets."""
_OPENS: Final = {"open": 1, "openat": 2}
"""The argument that holds the flags; the mode is the next one."""

_Instruction = tuple[int, int, int, int]


@cache
def build_filter(machine: str | None = None, *, datagrams: bool = True) -> bytes | None:
    """Return the filter as the kernel takes it. None: there is none for this machine.

    Args:
        machine: The machine, as `uname -m` names it; this one if not given.
        datagrams: Whether sockets of the internet may be others than TCP's.
    """
    known = _MACHINES.get(platform.machine() if machine is None else machine)
    if known is None:
        return None
    audit, numbers = known
    program: list[_Instruction] = [
        (_LOAD, 0, 0, _MACHINE_AT),
        *((_EQUAL, 1, 0, audit), (_RETURN, 0, 0, _UNKNOWN)),
        (_LOAD, 0, 0, _NUMBER_AT),
        *_when(_AT_LEAST, _X32, [(_RETURN, 0, 0, _UNKNOWN)]),
    ]
    for names, answer in ((_REFUSED, _REFUSE), (_DENIED_AS_UNKNOWN, _UNKNOWN)):
        for name in names:
            program += _when(_EQUAL, numbers.get(name), [(_RETURN, 0, 0, answer)])
    for name, block in _conditions(datagrams=datagrams).items():
        program += _when(_EQUAL, numbers.get(name), block)
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *each) for each in program)


def _conditions(*, datagrams: bool) -> dict[str, list[_Instruction]]:
    """Return the calls that are refused with some arguments only, each with what decides. Each block ends with a
    return, since it loads something else than the number of the call."""
    refuse_if_set = [(_ANY_BIT, 0, 1, _SETUID_BITS), (_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)]
    route = _when(_EQUAL, _NETLINK_ROUTE, [(_RETURN, 0, 0, _ALLOW)])
    netlink = [(_LOAD, 0, 0, _argument(2)), *route, (_RETURN, 0, 0, _NO_PROTOCOL)]
    allow, refuse = (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)
    # Of what a stream may be, only TCP: SCTP and MPTCP are others.
    protocols = [each for number in (0, _IPPROTO_TCP) for each in _when(_EQUAL, number, [allow])]
    tcp = [(_LOAD, 0, 0, _argument(2)), *protocols, refuse]
    stream = [(_LOAD, 0, 0, _argument(1)), (_AND, 0, 0, _KIND), *_when(_EQUAL, _SOCK_STREAM, tcp), refuse]
    internet = [allow] if datagrams else stream
    allowed = [each for family in (_AF_INET, _AF_INET6) for each in _when(_EQUAL, family, internet)]
    return {
        "socket": [
            (_LOAD, 0, 0, _argument(0)),
            *allowed,
            *_when(_EQUAL, _AF_NETLINK, netlink),
            (_RETURN, 0, 0, _REFUSE),
        ],
        "socketpair": [
            (_LOAD, 0, 0, _argument(0)),
            *_when(_EQUAL, _AF_UNIX, [(_RETURN, 0, 0, _ALLOW)]),
            (_RETURN, 0, 0, _REFUSE),
        ],
        "clone": _refuse_bits(0, _CLONE_NAMESPACES),
        "unshare": _refuse_bits(0, _NAMESPACES),
        "ioctl": [
            (_LOAD, 0, 0, _argument(1)),
            *_when(_EQUAL, _TIOCSTI, [(_RETURN, 0, 0, _REFUSE)]),
            *_when(_EQUAL, _TIOCLINUX, [(_RETURN, 0, 0, _REFUSE)]),
            (_RETURN, 0, 0, _ALLOW),
        ],
        **{name: _refuse_bits(index, _SETUID_BITS) for name, index in _MODES.items()},
        **{
            name: [
                (_LOAD, 0, 0, _argument(index)),
                *_when(_ANY_BIT, _CREATES, [(_LOAD, 0, 0, _argument(index + 1)), *refuse_if_set]),
                (_RETURN, 0, 0, _ALLOW),
            ]
            for name, index in _OPENS.items()
        },
    }


def _refuse_bits(index: int, bits: int) -> list[_Instruction]:
    refuse, allow = (_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)
    return [(_LOAD, 0, 0, _argument(index)), (_ANY_BIT, 0, 1, bits), refuse, allow]


def _argument(index: int) -> int:
    """Return where the lower half of an argument is, on machines that begin with it."""
    return _ARGUMENTS_AT + 8 * index


def _when(test: int, value: int | None, block: list[_Instruction]) -> list[_Instruction]:
    """Return the block behind a test that jumps over it. None: this machine has no such call."""
    return [] if value is None else [(test, 0, len(block), value), *block]
