"""Folders that somebody swaps for links meanwhile: no file tool and no box follows one out of the workspace."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from journeyman.sandbox import Box, Bubblewrap, SandboxUnavailable
from journeyman.sandbox.trials import run_in_sandbox, visible_folder
from journeyman.toolbox import Workspace
from journeyman.toolbox.workspace import ToolName
from tests.support.shares import IS_WHOLE
from tests.toolbox.player import Player

SECRET = "correct-horse"
SWAPPER = """
import ctypes, os, random, sys, time
os.chdir(sys.argv[1])
chance, exchange = random.Random(int(sys.argv[2])), ctypes.CDLL(None).renameat2
while os.getppid() == int(sys.argv[3]):
    if exchange(-100, b"a", -100, b"link", 2):
        raise SystemExit("renameat2 cannot exchange two names here")
    time.sleep(chance.random() ** 3 * float(sys.argv[4]))
"""
CALLS: tuple[tuple[ToolName, dict[str, object]], ...] = (
    ("read", {"path": "a/file"}),
    ("write", {"path": "a/new", "content": "x"}),
    ("write", {"path": "a/deep/new", "content": "x"}),
    ("edit", {"path": "a/file", "old": "here", "new": "there"}),
    ("ls", {"path": "a"}),
    ("glob", {"pattern": "a/**"}),
    ("grep", {"pattern": "correct"}),
    ("read", {"path": "a/deep/file"}),
)


@contextmanager
def swapped(seed: int, *, longest_s: float) -> Generator[Path]:
    """Give a folder whose `work/a` is a folder at one moment, and at the next one a link to `out`. A moment is as long
    as what is tried meanwhile."""
    with visible_folder() as folder:
        for name in ("work/a/deep", "out/deep"):
            (folder / name).mkdir(parents=True)
            for file in (folder / name / "file", (folder / name).parent / "file"):
                file.write_text("it is here" if name[0] == "w" else SECRET)
        (folder / "work/link").symlink_to("../out")
        arguments = [sys.executable, "-I", "-c", SWAPPER, str(folder / "work"), str(seed)]
        arguments += [str(os.getpid()), str(longest_s)]
        with subprocess.Popen(arguments) as swapper:
            try:
                yield folder
                assert swapper.poll() is None, "it has swapped up to the end"
            finally:
                swapper.kill()


def facts_of(folder: Path) -> Iterator[tuple[str, str]]:
    for each in sorted(folder.rglob("*")):
        yield str(each), each.read_text() if each.is_file() else ""


async def test_no_file_tool_follows_a_link_that_was_swapped_in(seed: int) -> None:
    with swapped(seed, longest_s=0.001) as folder:
        before, chance = [*facts_of(folder / "out")], Random(seed)
        player = Player(Workspace(folder / "work", ripgrep=None))
        n_done = 0
        for _ in range(10_000 if IS_WHOLE else 100):
            name, arguments = chance.choice(CALLS)
            result = await player.result(name, **arguments)
            assert SECRET not in result.text, (name, arguments)
            n_done += not result.is_error
        assert [*facts_of(folder / "out")] == before
        assert n_done > 0


async def test_no_box_has_a_folder_outside_that_was_swapped_in_while_it_was_opened(
    bubblewrap: Bubblewrap, seed: int
) -> None:
    with swapped(seed, longest_s=0.02) as folder:
        before = [*facts_of(folder / "out")]
        work = folder / "work"
        box = Box(work=str(work), protected=(str(work / "a/deep/file"),), hidden=(str(folder / "out/file"),))
        n_begun = n_opened = 0

        async def open_boxes() -> None:
            nonlocal n_begun, n_opened
            while n_begun < (10_000 if IS_WHOLE else 20) or not n_opened:
                try:
                    opened = await asyncio.to_thread(bubblewrap.open, box)
                    line = "echo x > a/deep/new; echo x > a/new; echo x > ../out/new; cat ../out/file"
                    _, output = await run_in_sandbox(opened, line)
                    await asyncio.to_thread(opened.close)
                    assert SECRET not in output
                    n_opened += 1
                except SandboxUnavailable as error:
                    if "while the box was opened: [Errno" in str(error):  # before it was begun
                        continue
                n_begun += 1
                assert [*facts_of(folder / "out")] == before, n_opened

        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(open_boxes())


SWAPPING_BWRAP = """#!/bin/sh
[ "$1" = --help ] || {{ mv {work}/a {work}/b; cp -r {work}/b {work}/a; }}
exec {bwrap} "$@"
"""


def test_a_folder_that_is_swapped_before_or_while_a_box_is_opened_opens_none() -> None:
    bwrap = shutil.which("bwrap") or pytest.skip("bubblewrap is not installed: make test does it")
    with visible_folder() as folder:
        work, program = folder / "work", folder / "bwrap"
        (work / "a/deep").mkdir(parents=True)
        (work / "a/deep/file").touch()
        program.write_text(SWAPPING_BWRAP.format(work=work, bwrap=bwrap))
        program.chmod(0o755)
        box = Box(work=str(work), protected=(str(work / "a/deep/file"),))
        with pytest.raises(SandboxUnavailable, match="is not what it was"):
            Bubblewrap(str(program)).open(replace(box, hosts=("a.test",)))  # with hosts, it waits for the keeper
        (work / "a").rename(work / "c")
        (work / "a").symlink_to("c")
        with pytest.raises(SandboxUnavailable, match="was swapped for something else while the box was opened"):
            Bubblewrap(bwrap).open(box)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    return int(str(request.config.getoption("randomly_seed", 7)))
