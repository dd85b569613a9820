"""The exam of sandboxes: each adapter that can work here sits it, and one that promises too much is found out."""

import asyncio
import shutil
import struct
import sys
from pathlib import Path

import pytest

from journeyman.sandbox import (
    Box,
    Bubblewrap,
    Landlock,
    NoSandbox,
    OpenSandbox,
    Sandbox,
    SandboxGuarantees,
    SandboxUnavailable,
    choose_sandbox,
    sandbox_exam,
)
from journeyman.sandbox.adapter import KeptSandbox, SandboxAdapter
from journeyman.sandbox.box import GUARANTEES, Guarantee
from journeyman.sandbox.filter import build_filter
from journeyman.sandbox.landlock import rules_of
from journeyman.sandbox.trials import visible_folder


async def test_bubblewrap_holds_everything(bubblewrap: Bubblewrap) -> None:
    guarantees = await sandbox_exam(lambda: bubblewrap)
    assert str(guarantees) == "holds files, protected, secrets, network, processes, programs"


async def test_landlock_holds_files_and_network(landlock: Landlock) -> None:
    held = (await sandbox_exam(lambda: landlock)).held
    assert held - {"processes"} == {"files", "network"}, "as root, the environment of others can be read"
    assert not landlock.holds().is_enough


async def test_without_a_sandbox_commands_run_all_the_same_and_nothing_is_promised() -> None:
    guarantees = await sandbox_exam(lambda: NoSandbox("none is installed"))
    assert str(guarantees) == f"holds nothing; not {', '.join(GUARANTEES)}: none is installed"


class Claimant:
    """A sandbox that claims guarantees, whatever the one behind it holds."""

    def __init__(self, behind: Sandbox, *guarantees: Guarantee, name: str = "boaster") -> None:
        self.name = name
        self._behind = behind
        self._guarantees = frozenset(guarantees)

    def holds(self) -> SandboxGuarantees:
        return SandboxGuarantees(held=self._guarantees)

    def open(self, box: Box) -> OpenSandbox:
        return self._behind.open(box)

    def close(self) -> None:
        self._behind.close()


async def test_a_sandbox_that_promises_too_much_fails_and_is_told_each_promise() -> None:
    with pytest.raises(AssertionError) as caught:
        await sandbox_exam(lambda: Claimant(NoSandbox(), *GUARANTEES))
    told = str(caught.value).splitlines()
    assert told[0] == "boaster does not keep its promises:"
    assert {line.partition(":")[0] for line in told[1:]} == {*GUARANTEES}


LEAKY = """#!{python} -IS
import os, sys
told, *given = [*sys.argv]
if "--args" in given:
    place = given.index("--args") + 1
    with open(int(given[place]), "rb") as file:
        options = file.read().decode().split("\\0")
    {change}
    given[place] = str(os.memfd_create("leaky", 0))
    os.write(int(given[place]), "\\0".join(options).encode())
    os.lseek(int(given[place]), 0, 0)
os.execv({bwrap!r}, ["bwrap", *given])
"""
DROP = """
    def drop_mount(ending, options=options):
        places = [at for at, each in enumerate(options) if each.endswith("bind") and options[at + 2].endswith(ending)]
        assert places, options
        for at in reversed(places):
            del options[at : at + 3]
    drop_mount({!r})"""
SHARE = 'at = options.index("--unshare-all"); options[at : at + 1] = [{}]'
BREACHES: tuple[tuple[Guarantee, str], ...] = (
    ("files", 'options[options.index("--ro-bind")] = "--bind"'),
    ("files", 'options[-3:-3] = ["--bind", "/usr", "/usr"]'),
    ("protected", DROP.format("/kept/deep/file")),
    ("protected", DROP.format("work/kept/deep")),
    ("protected", DROP.format("work/kept")),
    ("secrets", DROP.format("/out/secret")),
    ("secrets", DROP.format("/out/alone")),
    ("programs", DROP.format("/mkfifo")),
    ("network", SHARE.format('"--unshare-pid", "--unshare-ipc"')),
    ("network", 'at = given.index("--seccomp"); del given[at : at + 2]; place = given.index("--args") + 1'),
    ("files", 'os.execv(given[given.index("--") + 1], given[given.index("--") + 1 :])'),
    ("processes", 'options.remove("--as-pid-1"); ' + SHARE.format('"--unshare-net"')),
)
"""What a bwrap could leave out that is not the system's, and the guarantee that is broken by it."""


async def assert_found(sandbox: Sandbox, guarantee: Guarantee) -> None:
    """The probe does not see the guarantee held; who claims it all the same fails the exam, or opens no box at all."""
    found = await asyncio.to_thread(sandbox.holds)
    assert guarantee not in found.held, found
    with pytest.raises((AssertionError, SandboxUnavailable)) as caught:
        await sandbox_exam(lambda: Claimant(sandbox, guarantee))
    told = str(caught.value)
    assert f"\n{guarantee}: " in told or "can be written" in told or "is not what it was" in told, told


@pytest.mark.parametrize(("guarantee", "change"), BREACHES)
async def test_each_border_that_bubblewrap_leaves_out_is_found(
    bubblewrap: Bubblewrap, guarantee: Guarantee, change: str
) -> None:
    with visible_folder() as folder:
        program = folder / "bwrap"
        program.write_text(
            LEAKY.format(python=Path(sys.executable).resolve(), change=change, bwrap=shutil.which("bwrap"))
        )
        program.chmod(0o755)
        await assert_found(Bubblewrap(str(program)), guarantee)


ALLOW_ALL = struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000)


class LeakyLandlock(SandboxAdapter):
    """A Landlock with other borders than the box's."""

    def __init__(self, **others: object) -> None:
        super().__init__("leaky")
        self._others = others

    def open_box(self, box: Box) -> OpenSandbox:
        usual = {**rules_of(box, "/tmp", 6), "filter": build_filter(has_own_network=False)}
        return KeptSandbox(box, None, lambda _: {"borders": {**usual, **self._others}})


@pytest.mark.parametrize(
    ("guarantee", "others"),
    [
        ("files", {"rules": [("/", (1 << 16) - 1)]}),
        ("files", {"handled": [1 << 0], "rules": [("/", 1 << 0)]}),
        ("network", {"handled": [(1 << 16) - 1]}),
        ("network", {"filter": build_filter()}),
        ("network", {"filter": ALLOW_ALL}),
    ],
)
@pytest.mark.usefixtures("landlock")
async def test_each_border_that_landlock_leaves_out_is_found(guarantee: Guarantee, others: dict[str, object]) -> None:
    await assert_found(LeakyLandlock(**others), guarantee)


def test_the_first_one_that_holds_enough_is_chosen_and_else_the_first_that_holds_anything() -> None:
    none = NoSandbox("broken")
    fair, good = Claimant(none, "files", name="fair"), Claimant(none, *GUARANTEES)
    chosen: list[Sandbox] = [choose_sandbox(each) for each in ([none, fair, good], [none, fair], [none])]
    assert [each.name for each in chosen] == ["boaster", "fair", "none"]
    assert chosen[2].holds().reasons["files"] == f"none: {none.holds()}"


@pytest.mark.parametrize(
    ("place", "mode", "told"),
    [
        ("nowhere", 0, "bubblewrap is not installed (/"),
        ("bwrap", 0o777, "may be changed by others, so it is not trusted."),
        ("work/bwrap", 0o755, "lies where commands may write, so it is not trusted."),
        ("bwrap", 0o755, "is too old: it has no --unshare-all, --as-pid-1, "),
    ],
)
def test_a_program_that_is_missing_or_cannot_be_trusted_is_told(place: str, mode: int, told: str) -> None:
    with visible_folder() as folder:
        (folder / "work").mkdir()
        program = folder / place
        if mode:
            program.write_text("#!/bin/sh\necho --seccomp")
            program.chmod(mode)
        sandbox = Bubblewrap(str(program))
        with pytest.raises(SandboxUnavailable) as caught:
            sandbox.open(Box(work=str(folder / "work")))
        assert told in str(caught.value)
        assert sandbox.holds().held == frozenset()
        with pytest.raises(SandboxUnavailable, match="is not installed"):
            Bubblewrap("bwrap").open(Box(work=str(folder / "work")))


def test_what_is_missing_is_told_with_what_helps() -> None:
    assert (
        Bubblewrap("/nowhere/bwrap")
        .holds()
        .reasons["files"]
        .startswith("bubblewrap is not installed (/nowhere/bwrap). Install it (Debian")
    )
