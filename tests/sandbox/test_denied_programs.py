"""A program that a box denies does not run, whatever a command looks like: judged by whether it ran, not by reading."""

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from journeyman.cancellation import within
from journeyman.processes.kept import memory_of
from journeyman.sandbox import Box, Bubblewrap, NoSandbox, OpenSandbox, Sandbox
from journeyman.sandbox.programs import files_of_programs, folders_of_programs
from journeyman.sandbox.trials import visible_folder
from tests.permission.test_denied_commands import HIDDEN, INNOCENT
from tests.support.shares import thinned

MOST_S = 6.0
LEFT_S = 0.3  # what a command leaves in the background may be about to run the program
BROKEN = (
    *("dbus-run-session", "ssh-agent", "tmux"),  # they speak through a unix socket
    *("chroot", "runuser", "su ", "unshare", "perf"),  # they need rights that nobody has in a box
    "cp $BIN",  # it writes outside of the folder
)
"""Commands that a box breaks."""


class Kitchen:
    """A box in which `denied` is on the `PATH`, and notes that it ran. Each command gets a folder of its own."""

    def __init__(self, sandbox: Sandbox, folder: Path, *denied: str) -> None:
        self._work = folder / "work"
        self._programs = folder / "programs"
        self._calls = self._work / "calls"
        for each in (self._work, self._programs):
            each.mkdir()
        (self._programs / "denied").write_text(f"#!/bin/sh\necho ran >> '{self._calls}'\n")
        (self._programs / "denied").chmod(0o755)
        self._environment = {
            **{"PATH": f"{self._programs}:{os.environ['PATH']}", "BIN": str(self._programs), "CALLS": "calls"},
            **{"HOME": str(self._work), "V": "!denied"},
        }
        self._sandbox = sandbox
        self._box = Box(work=str(self._work), denied=denied, path=self._environment["PATH"])
        self._opened: OpenSandbox = sandbox.open(self._box)

    async def runs(self, command: str) -> bool:
        """Tell whether `denied` runs."""
        self._calls.unlink(missing_ok=True)
        if not self._opened.is_open:
            self._opened = self._sandbox.open(self._box)
        folder = self._work / "one"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        arguments = ["--norc", "--noprofile", "-c", command]
        with memory_of(b"") as output:
            process = await self._opened.spawn(
                *("bash", arguments),
                folder=str(folder),
                environment=self._environment,
                stdout=output.fileno(),
                stderr=output.fileno(),
            )
            await within(MOST_S, process.wait())
            await within(LEFT_S, process.wait_for_all())
            process.close()
        return self._calls.exists()

    def close(self) -> None:
        self._opened.close()


@contextmanager
def kitchen(sandbox: Sandbox, *denied: str) -> Generator[Kitchen]:
    with visible_folder() as folder:
        made = Kitchen(sandbox, folder, *denied)
        try:
            yield made
        finally:
            made.close()


@pytest.mark.fuzz
async def test_no_command_runs_a_program_that_the_box_denies(bubblewrap: Bubblewrap) -> None:
    with kitchen(bubblewrap, "denied") as made:
        ran = [command for command in thinned(HIDDEN, 6) if await made.runs(command)]
    assert ran == []


@pytest.mark.fuzz
async def test_what_runs_it_without_a_box_runs_it_in_a_box_that_does_not_deny_it(bubblewrap: Bubblewrap) -> None:
    tried = thinned(HIDDEN, 12)
    with kitchen(bubblewrap) as made, kitchen(NoSandbox()) as outside:
        ran = [command for command in tried if await outside.runs(command)]
        differing = [command for command in ran if not await made.runs(command)]
    assert len(ran) > len(tried) / 2
    assert [command for command in differing if not command.startswith(BROKEN)] == []


def test_the_files_of_a_program_are_all_that_could_be_run_under_its_name(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a/one").write_text("")
    (tmp_path / "b/two").hardlink_to(tmp_path / "a/one")
    (tmp_path / "b/one").symlink_to("three")
    (tmp_path / "b/three").write_text("")
    folders = [str(tmp_path / name) for name in ("a", "b")]
    found, refused = files_of_programs(["one"], folders)
    assert (sorted(found), refused) == ([str(tmp_path / name) for name in ("a/one", "b/three", "b/two")], [])
    assert files_of_programs(["two"], folders)[0] == [str(tmp_path / name) for name in ("a/one", "b/two")]
    assert files_of_programs(["none"], folders) == ([], [])


def test_a_file_that_is_many_programs_is_not_taken_away_with_one_of_them(tmp_path: Path) -> None:
    (tmp_path / "box").write_text("")
    for number in range(20):
        (tmp_path / f"tool{number}").symlink_to("box")
    (tmp_path / "git").write_text("")
    for number in range(20):
        (tmp_path / f"git-{number}").symlink_to("git")
    found, refused = files_of_programs(["tool3", "git"], [str(tmp_path)])
    assert (found, refused) == ([str(tmp_path / "git")], ["tool3"])


def test_everyday_commands_are_there_to_be_counted() -> None:
    assert len(INNOCENT) >= 120
    assert "/usr/bin" in folders_of_programs()
