"""The filter of system calls, run by an interpreter of BPF: what it answers to each call, on each machine."""

import errno
import struct

import pytest

from journeyman.sandbox.filter import build_filter, build_supervision

ALLOW, ASK = 0x7FFF0000, 0x7FC00000
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NUMBERS = {
    "x86_64": {
        "read": 0,
        "open": 2,
        "ioctl": 16,
        "socket": 41,
        "socketpair": 53,
        "clone": 56,
        "chmod": 90,
        "mount": 165,
    }
    | {"openat": 257, "fchmodat": 268, "unshare": 272, "keyctl": 250},
    "aarch64": {"read": 63, "ioctl": 29, "socket": 198, "socketpair": 199, "clone": 220, "mount": 40, "openat": 56}
    | {"fchmodat": 53, "unshare": 97, "keyctl": 219},
}
REFUSED = f"errno {errno.EPERM}"
UNKNOWN = f"errno {errno.ENOSYS}"


def answer(program: bytes, machine: int, number: int, *arguments: int) -> str:
    """Return what a filter answers to a call."""
    data = struct.pack("=IIQ6Q", number, machine, 0, *arguments, *[0] * (6 - len(arguments)))
    instructions = [*struct.iter_unpack("=HBBI", program)]
    at, value = 0, 0
    while True:
        code, yes, no, operand = instructions[at]
        at += 1
        match code:
            case 0x20:
                [value] = struct.unpack_from("=I", data, operand)
            case 0x54:
                value &= operand
            case 0x06:
                return {ALLOW: "allowed", ASK: "asked"}.get(operand, f"errno {operand & 0xFFFF}")
            case _:
                is_so = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[code]
                at += yes if is_so else no


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("read", (0, 0, 0), "allowed"),
        ("socket", (2, 1, 0), "allowed"),
        ("socket", (10, 2, 0), "allowed"),
        ("socket", (1, 0o2004001, 0), "allowed"),
        ("socket", (1, 5, 0), "allowed"),
        ("socket", (1, 2, 0), REFUSED),
        ("socket", (1, 3, 0), REFUSED),
        ("socket", (16, 3, 0), "allowed"),
        ("socket", (16, 3, 9), f"errno {errno.EPROTONOSUPPORT}"),
        ("socket", (40, 1, 0), REFUSED),
        ("socket", (17, 3, 0), REFUSED),
        ("socket", ((1 << 32) + 17, 1, 0), REFUSED),
        ("socketpair", (1, 0o2000001, 0), "allowed"),
        ("socketpair", (1, 5, 0), "allowed"),
        ("socketpair", (1, 2, 0), REFUSED),
        ("socketpair", (1, 3, 0), REFUSED),
        ("socketpair", (2, 1, 0), REFUSED),
        ("clone", (0x1200011,), "allowed"),
        ("clone", (0x10000011,), REFUSED),
        ("unshare", (0x400,), "allowed"),
        ("unshare", (0x20000,), REFUSED),
        ("unshare", (0x80,), REFUSED),
        ("ioctl", (0, 0x5401), "allowed"),
        ("ioctl", (0, 0x5412), REFUSED),
        ("ioctl", (0, (1 << 32) + 0x541C), REFUSED),
        ("fchmodat", (0, 0, 0o755), "allowed"),
        ("fchmodat", (0, 0, 0o4755), REFUSED),
        ("fchmodat", (0, 0, 0o2755), REFUSED),
        ("openat", (0, 0, 0o101, 0o644), "allowed"),
        ("openat", (0, 0, 0o101, 0o4755), REFUSED),
        ("openat", (0, 0, 0o20200001, 0o4755), REFUSED),
        ("openat", (0, 0, 0, 0o4755), "allowed"),
        ("mount", (), REFUSED),
        ("keyctl", (), REFUSED),
        (435, (), UNKNOWN),
        (437, (), UNKNOWN),
        (425, (), UNKNOWN),
        (452, (0, 0, 0o4755), REFUSED),
    ],
)
def test_the_filter_answers(machine: str, name: str | int, arguments: tuple[int, ...], expected: str) -> None:
    program = build_filter(machine)
    assert program is not None
    number = name if isinstance(name, int) else NUMBERS[machine][name]
    assert answer(program, MACHINES[machine], number, *arguments) == expected


def test_calls_of_another_machine_are_refused_whole() -> None:
    program = build_filter("x86_64")
    assert program is not None
    assert answer(program, 0x40000003, 0) == UNKNOWN, "those of 32 bits"
    assert answer(program, MACHINES["x86_64"], 0x40000000 + 41, 2, 1, 0) == UNKNOWN, "those of x32"
    assert build_filter("vax") is None


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        *(((2, 1, 0), "allowed"), ((10, 0o2000001, 6), "allowed"), ((2, 2, 0), REFUSED), ((2, 1, 132), REFUSED)),
        *(((2, 1, 262), REFUSED), ((2, 3, 1), REFUSED), ((1, 1, 0), REFUSED)),
    ],
)
def test_without_datagrams_only_tcp_is_left(arguments: tuple[int, ...], expected: str) -> None:
    program = build_filter("x86_64", has_own_network=False)
    assert program is not None
    assert answer(program, MACHINES["x86_64"], 41, *arguments) == expected


@pytest.mark.parametrize("machine", MACHINES)
def test_the_supervisor_is_asked_before_each_connect_and_bind_and_without_one_there_are_no_unix_sockets(
    machine: str,
) -> None:
    programs = build_supervision(machine)
    assert programs is not None
    connect, bind, socket = {"x86_64": (42, 49, 41), "aarch64": (203, 200, 198)}[machine]
    expected = {"asking": ("asked", "asked", "allowed", "allowed")}
    expected |= {"refusing": ("allowed", "allowed", REFUSED, "allowed")}
    for name, answers in expected.items():
        calls = ((connect, 3, 0, 16), (bind, 3, 0, 16), (socket, 1, 1, 0), (socket, 2, 1, 0))
        program = programs[name]
        assert isinstance(program, bytes)
        assert tuple([answer(program, MACHINES[machine], *call) for call in calls]) == answers
    assert build_supervision("vax") is None
