"""Nothing stays behind: whoever of a box is killed, at whatever moment, and however many boxes are open at once."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from random import Random

import pytest

from journeyman.sandbox import Box, Bubblewrap
from journeyman.sandbox.trials import run_in_sandbox, visible_folder

LOCK = "exec 9> lock; flock -n 9 || flock 9; echo > locked; sleep 60"
PARENT = textwrap.dedent(
    """
    import asyncio, os, sys
    from journeyman.sandbox import Box, Bubblewrap

    async def main():
        opened = Bubblewrap().open(Box(work=sys.argv[1]))
        print("opened", flush=True)
        first = await opened.spawn("sleep", ["60"], environment={"PATH": "/usr/bin:/bin"})
        process = await opened.spawn("sh", ["-c", sys.argv[2]], environment={"PATH": "/usr/bin:/bin"})
        await process.wait()

    asyncio.run(main())
    """
)
PEOPLE = ("parent", "bwrap", "keeper", "keeper of the second command")


def family_of(process: int) -> list[int]:
    """Return a process and the last child of each in turn: the parent, bwrap, the keeper of the first command, and the
    one that was forked for the second."""
    found = [process]
    while len(found) < len(PEOPLE):
        try:
            children = Path(f"/proc/{found[-1]}/task/{found[-1]}/children").read_text().split()
        except OSError:
            break
        if not children:
            break
        found.append(int(children[-1]))
    return found


def those_in(folder: Path) -> set[int]:
    """Return the processes that are in a folder, or have something of it open."""
    found = set[int]()
    for process in Path("/proc").iterdir():
        links = [process / "cwd", *_children(process / "fd")] if process.name.isdecimal() else []
        for link in links:
            try:
                if link.readlink().is_relative_to(folder):
                    found.add(int(process.name))
            except OSError:
                continue
    return found


def _children(folder: Path) -> list[Path]:
    try:
        return [*folder.iterdir()]
    except OSError:
        return []


@pytest.mark.share(one_in=10)
@pytest.mark.parametrize("moment", range(50))
async def test_nothing_lives_a_second_after_one_of_a_box_was_killed(bubblewrap: Bubblewrap, moment: int) -> None:
    chance = Random(moment)
    victim, delay_s = moment % len(PEOPLE), chance.uniform(0, 0.12)
    with visible_folder() as folder:
        line = f"setsid sh -c '{LOCK}' > /dev/null 2>&1 & sh -c '{LOCK}' & {LOCK}"
        arguments = [sys.executable, "-c", PARENT, str(folder), line]
        parent = await asyncio.create_subprocess_exec(*arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert parent.stdout is not None
        assert (await parent.stdout.readline()) == b"opened\n"
        await asyncio.wait({asyncio.ensure_future(parent.wait())}, timeout=delay_s)
        family = await asyncio.to_thread(family_of, parent.pid)
        pid = family[min(victim, len(family) - 1)]
        os.kill(pid, signal.SIGKILL)
        if pid == parent.pid:
            await parent.wait()
        else:  # it ends by itself, with what its box has come to
            await asyncio.wait_for(parent.wait(), 60)
        # Whoever waits for the lock gets it once nobody of the box has it any more.
        free = await asyncio.create_subprocess_exec("flock", "-w", "1", str(folder / "lock"), "true")
        assert await free.wait() == 0, (PEOPLE[victim], delay_s)
        left = await asyncio.to_thread(those_in, folder)
        for _ in range(20):
            if left:
                await asyncio.wait({asyncio.ensure_future(asyncio.to_thread(those_in, folder))}, timeout=0.05)
                left = await asyncio.to_thread(those_in, folder)
        assert not left, (PEOPLE[victim], delay_s)


async def test_many_boxes_are_open_at_once_and_leave_nothing(bubblewrap: Bubblewrap) -> None:
    n_boxes = 64 if "JOURNEYMAN_FUZZ" in os.environ else 12
    before = {each.name for each in Path("/proc/self/fd").iterdir()}
    with visible_folder() as folder:
        works = [folder / str(number) for number in range(n_boxes)]
        for each in works:
            each.mkdir()
        opening = [asyncio.to_thread(bubblewrap.open, Box(work=str(each))) for each in works]
        opened = await asyncio.gather(*opening)
        lines = [run_in_sandbox(each, "pwd; ls /proc | grep -c '^[0-9]'; sleep 60 > /dev/null & ") for each in opened]
        done = await asyncio.gather(*lines)
        assert [output.split()[0] for _, output in done] == [str(each) for each in works]
        assert {code for code, _ in done} == {0}
        await asyncio.gather(*[asyncio.to_thread(each.close) for each in opened])
        assert await asyncio.to_thread(those_in, folder) == set()
    assert {each.name for each in Path("/proc/self/fd").iterdir()} == before


LIMITED = textwrap.dedent(
    """
    import asyncio, os, resource, sys
    from journeyman.sandbox import Box, Bubblewrap, SandboxUnavailable
    from journeyman.sandbox.trials import run_in_sandbox

    async def main():
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
        sandbox, opened = Bubblewrap(), []
        for _ in range(40):
            try:
                opened.append(sandbox.open(Box(work=sys.argv[1])))
                await run_in_sandbox(opened[-1], "true")
            except SandboxUnavailable as error:
                print(error)
                opened.pop().close()
                break
        print((await run_in_sandbox(opened[0], "echo still works"))[1])
        sandbox.close()
        print(len(os.listdir("/proc/self/fd")))

    asyncio.run(main())
    """
)


async def test_the_limit_that_many_boxes_meet_is_told_and_the_others_go_on(bubblewrap: Bubblewrap) -> None:
    with visible_folder() as folder:
        arguments = [sys.executable, "-c", LIMITED, str(folder)]
        running = await asyncio.create_subprocess_exec(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        output, errors = (each.decode() for each in await running.communicate())
        assert "Too many open files" in output, errors
        assert "still works" in output, errors
        assert int(output.split()[-1]) < 12, "all descriptors were closed"
