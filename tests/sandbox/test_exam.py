"""The exam of sandboxes: each adapter that can work here sits it, and one that promises too much is found out."""

import sys

import pytest

from journeyman.sandbox import (
    Box,
    Bubblewrap,
    Landlock,
    NoSandbox,
    OpenSandbox,
    Sandbox,
    SandboxGuarantees,
    choose_sandbox,
    sandbox_exam,
)
from journeyman.sandbox.box import GUARANTEES


async def test_bubblewrap_holds_everything(bubblewrap: Bubblewrap) -> None:
    guarantees = await sandbox_exam(lambda: bubblewrap)
    assert str(guarantees) == "holds files, protected, secrets, network, processes, programs"


async def test_landlock_holds_files_and_network(bubblewrap: Bubblewrap) -> None:
    sandbox = Landlock()
    if not sandbox.holds().held:
        pytest.skip(f"Landlock does not hold here: {sandbox.holds()}")
    held = (await sandbox_exam(lambda: sandbox)).held
    assert held - {"processes"} == {"files", "network"}, "as root, the environment of others can be read"
    assert not sandbox.holds().is_enough


async def test_without_a_sandbox_commands_run_all_the_same_and_nothing_is_promised() -> None:
    guarantees = await sandbox_exam(lambda: NoSandbox("none is installed"))
    assert str(guarantees) == f"holds nothing; not {', '.join(GUARANTEES)}: none is installed"


class Boaster:
    """A sandbox that draws no borders, and says that it holds all of them."""

    name = "boaster"

    def __init__(self) -> None:
        self._behind = NoSandbox()

    def holds(self) -> SandboxGuarantees:
        return SandboxGuarantees(held=frozenset(GUARANTEES))

    def open(self, box: Box) -> OpenSandbox:
        return self._behind.open(box)

    def close(self) -> None:
        self._behind.close()


async def test_a_sandbox_that_promises_too_much_fails_and_is_told_each_promise() -> None:
    with pytest.raises(AssertionError) as caught:
        await sandbox_exam(Boaster)
    told = str(caught.value).splitlines()
    assert told[0] == "boaster does not keep its promises:"
    assert {line.partition(":")[0] for line in told[1:]} == {*GUARANTEES}


def test_the_first_one_that_holds_enough_is_chosen_and_else_the_first_that_holds_anything() -> None:
    class Fair(Boaster):
        """A sandbox that says that it holds files."""

        name = "fair"

        def holds(self) -> SandboxGuarantees:
            return SandboxGuarantees(held=frozenset({"files"}))

    none, fair, good = NoSandbox("broken"), Fair(), Boaster()
    chosen: list[Sandbox] = [choose_sandbox(each) for each in ([none, fair, good], [none, fair], [none])]
    assert [each.name for each in chosen] == ["boaster", "fair", "none"]
    assert chosen[2].holds().reasons["files"] == f"none: {none.holds()}"


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/zero")
def test_what_is_missing_or_cannot_be_trusted_is_told_with_what_helps(tmp_path: object) -> None:
    held = Bubblewrap("/nowhere/bwrap").holds()
    assert held.held == frozenset()
    assert held.reasons["files"].startswith("bubblewrap is not installed (/nowhere/bwrap). Install it (Debian")
