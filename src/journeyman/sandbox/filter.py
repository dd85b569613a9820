"""The seccomp filter of a box: the calls of the kernel that no command needs and that lead out of it.

It is a program of classic BPF, which the kernel runs before each call. It refuses families of sockets beyond those of
the internet and unix streams, namespaces and mounts, bits that let a file run as its owner, and calls that a filter
cannot look into (`clone3`, `openat2`, io_uring), for which programs have another way. All else is allowed. A second one
asks the supervisor before each `connect` and `bind`.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Mapping
from functools import cache
from typing import Final, TypeAlias

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN, _AND = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54
_Instruction: TypeAlias = tuple[int, int, int, int]
_ALLOW: Final[_Instruction] = (_RETURN, 0, 0, 0x7FFF0000)
_REFUSE: Final[_Instruction] = (_RETURN, 0, 0, 0x00050000 | errno.EPERM)
_UNKNOWN: Final[_Instruction] = (_RETURN, 0, 0, 0x00050000 | errno.ENOSYS)
_ASK: Final[_Instruction] = (_RETURN, 0, 0, 0x7FC00000)
_NO_PROTOCOL: Final[_Instruction] = (_RETURN, 0, 0, 0x00050000 | errno.EPROTONOSUPPORT)
"""As on a system without it: programs go on without audit."""
_NUMBER_AT, _MACHINE_AT, _ARGUMENTS_AT = 0, 4, 16
_X32: Final = 0x40000000

_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_NETLINK_ROUTE: Final = 0
_SOCK_STREAM, _SOCK_SEQPACKET, _KIND, _IPPROTO_TCP = 1, 5, 0xF, 6
_CLONE_NAMESPACES: Final = 0x7E020000  # CLONE_NEW*; the lowest bits of clone's own flags are a signal
_NAMESPACES: Final = _CLONE_NAMESPACES | 0x80
_SETUID_BITS: Final = 0o6000
_CREATES: Final = 0o100 | 0o20000000  # O_CREAT, and the bit of O_TMPFILE that is no O_DIRECTORY
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

_MACHINES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""The place of each machine in the tables of numbers, and how the kernel names it. A call without a number is one that
the machine does not have."""
_REFUSED: Final = {
    **{"mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "setns": (308, 268)},
    **{"move_mount": (429, 429), "open_tree": (428, 428), "open_tree_attr": (467, 467), "fsopen": (430, 430)},
    **{"fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442)},
    **{"swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142), "init_module": (175, 105)},
    **{"finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104)},
    **{"kexec_file_load": (320, 294), "quotactl": (179, 60), "quotactl_fd": (443, 443), "acct": (163, 89)},
    **{"settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266)},
    **{"iopl": (172, None), "ioperm": (173, None), "syslog": (103, 116), "add_key": (248, 217)},
    **{"request_key": (249, 218), "keyctl": (250, 219), "bpf": (321, 280), "perf_event_open": (298, 241)},
    **{"userfaultfd": (323, 282), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265)},
    **{"lookup_dcookie": (212, 18), "fanotify_init": (300, 262), "vhangup": (153, 58), "uselib": (134, None)},
}
_DENIED_AS_UNKNOWN: Final = {
    **{"clone3": (435, 435), "openat2": (437, 437), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426)},
    **{"io_uring_register": (427, 427)},
}
_JUDGED: Final = {
    **{"socket": (41, 198), "socketpair": (53, 199), "clone": (56, 220), "unshare": (272, 97), "ioctl": (16, 29)},
    **{"chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "creat": (85, None)},
    **{"mknod": (133, None), "mknodat": (259, 33), "open": (2, None), "openat": (257, 56)},
}
"""The calls that are refused with some arguments only: see `_conditions`."""
_MODES: Final = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mknod": 1, "mknodat": 2}
"""The argument of each call that is the mode which a file gets."""
_BIND, _CONNECT, _SECCOMP = (49, 200), (42, 203), (317, 277)
_OPENS: Final = {"open": 1, "openat": 2}
"""The argument that holds the flags; the mode is the next one."""


@cache
def build_filter(machine: str | None = None, *, has_own_network: bool = True) -> bytes | None:
    """Return the filter as the kernel takes it. None: there is none for this machine.

    Args:
        machine: The machine, as `uname -m` names it; this one if not given.
        has_own_network: Whether the box has a network of its own. If not, it gets no sockets but those of TCP.
    """
    known = _MACHINES.get(platform.machine() if machine is None else machine)
    if known is None:
        return None
    column, audit = known
    program: list[_Instruction] = [
        (_LOAD, 0, 0, _MACHINE_AT),
        *((_EQUAL, 1, 0, audit), _UNKNOWN),
        (_LOAD, 0, 0, _NUMBER_AT),
        *_when(_AT_LEAST, _X32, [_UNKNOWN]),
    ]
    for calls, answer in ((_REFUSED, _REFUSE), (_DENIED_AS_UNKNOWN, _UNKNOWN)):
        program += [each for numbers in calls.values() for each in _when(_EQUAL, numbers[column], [answer])]
    for name, block in _conditions(has_own_network=has_own_network).items():
        program += _when(_EQUAL, _JUDGED[name][column], block)
    return _pack([*program, _ALLOW])


@cache
def build_supervision(machine: str | None = None) -> Mapping[str, object] | None:
    """Return the filters for unix sockets: one that asks the supervisor before each `connect` and `bind`, with the
    number of the call that sets it, and one that refuses such sockets where the system cannot ask. None: as for
    `build_filter`."""
    known = _MACHINES.get(platform.machine() if machine is None else machine)
    if known is None:
        return None
    number: list[_Instruction] = [(_LOAD, 0, 0, _NUMBER_AT)]
    asked = [each for numbers in (_BIND, _CONNECT) for each in _when(_EQUAL, numbers[known[0]], [_ASK])]
    refusing = _when(_EQUAL, _JUDGED["socket"][known[0]], [_load(0), *_when(_EQUAL, _AF_UNIX, [_REFUSE]), _ALLOW])
    return {
        "set_filter": _SECCOMP[known[0]],
        "asking": _pack([*number, *asked, _ALLOW]),
        "refusing": _pack([*number, *refusing, _ALLOW]),
    }


def _pack(program: list[_Instruction]) -> bytes:
    return b"".join(struct.pack("=HBBI", *each) for each in program)


def _conditions(*, has_own_network: bool) -> dict[str, list[_Instruction]]:
    """Return what decides about each call that is refused with some arguments only. Each block ends with a return,
    since it loads something else than the number of the call."""
    netlink = [_load(2), *_when(_EQUAL, _NETLINK_ROUTE, [_ALLOW]), _NO_PROTOCOL]
    # Of what a stream may be, only TCP: SCTP and MPTCP are others.
    tcp = [_load(2), *_when(_EQUAL, 0, [_ALLOW]), *_when(_EQUAL, _IPPROTO_TCP, [_ALLOW]), _REFUSE]
    stream = [_load(1), (_AND, 0, 0, _KIND), *_when(_EQUAL, _SOCK_STREAM, tcp), _REFUSE]
    internet: list[_Instruction] = [_ALLOW] if has_own_network else stream
    # A socket of datagrams sends to whatever name it is given, also one of a pair.
    connected = [each for kind in (_SOCK_STREAM, _SOCK_SEQPACKET) for each in _when(_EQUAL, kind, [_ALLOW])]
    unix: list[_Instruction] = [_load(1), (_AND, 0, 0, _KIND), *connected, _REFUSE]
    families = {_AF_INET: internet, _AF_INET6: internet, _AF_NETLINK: netlink}
    families |= {_AF_UNIX: unix} if has_own_network else {}
    sockets = [each for family, block in families.items() for each in _when(_EQUAL, family, block)]
    typing = [each for request in (_TIOCSTI, _TIOCLINUX) for each in _when(_EQUAL, request, [_REFUSE])]
    return {
        "socket": [_load(0), *sockets, _REFUSE],
        "socketpair": [_load(0), *_when(_EQUAL, _AF_UNIX, unix), _REFUSE],
        "clone": _refuse_bits(0, _CLONE_NAMESPACES),
        "unshare": _refuse_bits(0, _NAMESPACES),
        "ioctl": [_load(1), *typing, _ALLOW],
        **{name: _refuse_bits(index, _SETUID_BITS) for name, index in _MODES.items()},
        **{
            name: [_load(index), *_when(_ANY_BIT, _CREATES, _refuse_bits(index + 1, _SETUID_BITS)), _ALLOW]
            for name, index in _OPENS.items()
        },
    }


def _refuse_bits(index: int, bits: int) -> list[_Instruction]:
    return [_load(index), *_when(_ANY_BIT, bits, [_REFUSE]), _ALLOW]


def _load(index: int) -> _Instruction:
    """Load the lower half of an argument, on machines that begin with it."""
    return (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * index)


def _when(test: int, value: int | None, block: list[_Instruction]) -> list[_Instruction]:
    """Return the block behind a test that jumps over it. None: this machine has no such call."""
    return [] if value is None else [(test, 0, len(block), value), *block]
