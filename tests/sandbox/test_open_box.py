"""A box that is open: its keeper starts commands, finds what they leave behind, and ends with whoever opened it."""

import asyncio
import os
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from journeyman.sandbox import Bubblewrap, Landlock, NoSandbox, OpenSandbox, Sandbox, SandboxUnavailable
from journeyman.sandbox.trials import run_in_sandbox
from tests.sandbox.stage import Stage

PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


async def is_locked(lock: Path) -> bool:
    """Tell whether somebody still holds a lock after a second."""
    asked = await asyncio.create_subprocess_exec("flock", "-w", "1", str(lock), "true")
    return await asked.wait() != 0


HOLD = "setsid sh -c 'exec 9> lock; flock 9; echo > locked; sleep 60' > /dev/null 2>&1 &"
WAIT = "while ! [ -e locked ]; do sleep 0.01; done"


async def test_a_server_in_the_background_and_the_next_command_see_each_other(
    bubblewrap: Bubblewrap, stage: Stage
) -> None:
    opened = bubblewrap.open(stage.box())
    server = await opened.spawn("python3", ["-m", "http.server", "8000", "--bind", "127.0.0.1"], environment=PATH)
    line = "until exec 9<> /dev/tcp/127.0.0.1/8000; do sleep 0.02; done; echo GET /f HTTP/1.0 >&9; echo >&9; cat <&9"
    code, output = await run_in_sandbox(opened, f"exec bash -c '{line}' 2> /dev/null", PATH)
    assert (code, output[-6:]) == (0, "b\na\nc\n")
    server.send(signal.SIGTERM)
    assert await server.wait() == -signal.SIGTERM
    opened.close()


async def test_what_a_command_leaves_behind_is_known_and_ended(bubblewrap: Bubblewrap, stage: Stage) -> None:
    opened = bubblewrap.open(stage.box())
    process = await opened.spawn("sh", ["-c", f"{HOLD} {WAIT}"], environment=PATH)
    assert await process.wait() == 0
    assert process.are_left()
    process.send(signal.SIGKILL)
    await process.wait_for_all()
    assert not process.are_left()
    assert not await is_locked(stage.work / "lock")
    tidy = await opened.spawn("true", environment=PATH)
    assert (await tidy.wait(), tidy.are_left()) == (0, False)
    opened.close()


@pytest.mark.parametrize("make", [Bubblewrap, NoSandbox])
async def test_a_command_inherits_its_streams_and_no_other_descriptor(
    bubblewrap: Bubblewrap, make: type[Sandbox], stage: Stage
) -> None:
    opened = make().open(stage.box())
    _, output = await run_in_sandbox(opened, "ls /proc/self/fd", PATH)
    opened.close()
    assert output.split() == ["0", "1", "2", "3"], "3 is the folder that ls reads"


async def test_no_command_sees_the_arguments_or_sockets_of_its_keeper(bubblewrap: Bubblewrap, stage: Stage) -> None:
    opened = bubblewrap.open(stage.box())
    _, output = await run_in_sandbox(opened, "ls /proc/1/fd; cat /proc/1/environ; gdb -p 1 -batch 2>&1 | tail -1", PATH)
    opened.close()
    assert "Permission denied" in output
    assert "socket" not in output


async def test_a_command_that_kills_its_keepers_ends_the_box_and_nothing_lives_on(
    bubblewrap: Bubblewrap, stage: Stage
) -> None:
    opened = bubblewrap.open(stage.box())
    # The keeper of the first command is the first process, which cannot be killed from inside.
    code, _ = await run_in_sandbox(opened, 'kill -9 $PPID 1; kill -STOP $PPID; [ "$PPID" = 1 ]', PATH)
    assert (code, opened.is_open) == (0, True)
    first = await opened.spawn("sleep", ["60"], environment=PATH)
    line = f"{HOLD} {WAIT}; kill -9 $PPID 1; kill -9 -1; sleep 60"
    process = await opened.spawn("sh", ["-c", line], environment=PATH)
    assert [await each.wait() for each in (process, first)] == [-signal.SIGKILL] * 2
    assert not opened.is_open
    assert not await is_locked(stage.work / "lock")
    with pytest.raises(SandboxUnavailable, match="nothing was run outside of it"):
        await opened.spawn("true", environment=PATH)


async def test_a_box_that_was_killed_from_outside_runs_nothing_more(bubblewrap: Bubblewrap, stage: Stage) -> None:
    opened = bubblewrap.open(stage.box())
    process = await opened.spawn("sh", ["-c", f"{HOLD} {WAIT}; sleep 60"], environment=PATH)
    keeper = [child for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split() if is_bwrap(child)]
    assert keeper
    for each in keeper:
        os.kill(int(each), signal.SIGKILL)
    await process.wait()
    assert not opened.is_open
    assert not await is_locked(stage.work / "lock")


def is_bwrap(process: str) -> bool:
    return b"bwrap" in Path(f"/proc/{process}/cmdline").read_bytes()


async def test_a_box_of_another_process_is_not_used(bubblewrap: Bubblewrap, stage: Stage) -> None:
    opened = bubblewrap.open(stage.box())
    assert exit_code_of_child(opened) == 0
    assert (await run_in_sandbox(opened, "true", PATH))[0] == 0, "the child has not closed it"
    opened.close()


def exit_code_of_child(opened: OpenSandbox) -> int:
    child = os.fork()
    if not child:
        os._exit(0 if is_refused(opened) else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def is_refused(opened: OpenSandbox) -> bool:
    spawning = opened.spawn("true", environment=PATH)
    try:
        spawning.send(None)
    except SandboxUnavailable as error:
        return "opened by another process" in str(error) and not opened.is_open
    return False


@pytest.mark.parametrize("is_left", [True, False])
async def test_what_the_first_command_leaves_is_told_apart_from_what_others_run(
    bubblewrap: Bubblewrap, stage: Stage, is_left: bool
) -> None:
    opened = bubblewrap.open(stage.box())
    outer, inner = os.pipe()
    lines = ("read go; " + "sleep 60 &" * is_left, "exec sleep 60", "setsid sleep 60 &")
    first, *others = [await opened.spawn("sh", ["-c", each], environment=PATH, stdin=outer) for each in lines]
    for number in (outer, inner):
        os.close(number)
    assert (await others[1].wait(), await first.wait() in (0, 1), first.are_left()) == (0, True, is_left)
    first.send(signal.SIGKILL)
    await first.wait_for_all()
    assert [each.are_left() for each in (first, *others)] == [False, True, True]
    opened.close()


async def test_many_commands_at_once_each_have_their_own_end(bubblewrap: Bubblewrap, stage: Stage) -> None:
    opened = bubblewrap.open(stage.box())
    done = await asyncio.gather(*(run_in_sandbox(opened, f"echo {n}; exit {n}", PATH) for n in range(40)))
    opened.close()
    assert done == [(n, f"{n}\n") for n in range(40)]


async def test_what_cannot_be_started_is_told_as_without_a_box(bubblewrap: Bubblewrap, stage: Stage) -> None:
    opened = bubblewrap.open(stage.box())
    missing = await opened.spawn("no-such-program", environment=PATH)
    with pytest.raises(FileNotFoundError):
        await missing.wait()
    elsewhere = await opened.spawn("true", folder="/nowhere", environment=PATH)
    with pytest.raises(FileNotFoundError):
        await elsewhere.wait()
    opened.close()


async def test_what_is_masked_ends_as_what_may_not_be_run(bubblewrap: Bubblewrap, stage: Stage) -> None:
    opened = bubblewrap.open(stage.box("python3", "git"))
    for line in ("exec bash -c 'python3 -c 1'", "exec bash -c 'git status'", "cat .env"):
        code, output = await run_in_sandbox(opened, line, PATH)
        assert (code in (1, 126), "Permission denied" in output) == (True, True), (line, code, output)
    opened.close()


async def test_a_box_that_shows_the_system_has_its_programs_and_hides_the_rest(
    bubblewrap: Bubblewrap, stage: Stage
) -> None:
    opened = bubblewrap.open(replace(stage.box(), reads="system"))
    environment = {**stage.environment, "PYTHON": sys.executable}
    for line in ("git log --oneline", "python3 -c 'import ssl'", "sed p f", '"$PYTHON" -c "import json"'):
        assert (await run_in_sandbox(opened, line, environment))[0] == 0, line
    for line in ('cat "$OUT/file"', "cat ~/.bashrc", 'ls "$OUT"'):
        code, output = await run_in_sandbox(opened, line, environment)
        assert (code != 0, "No such file" in output) == (True, True), line
    opened.close()


async def test_a_protected_path_may_be_a_link_a_folder_a_pipe_or_missing(bubblewrap: Bubblewrap, stage: Stage) -> None:
    os.mkfifo(stage.work / "pipe")
    (stage.work / "link").symlink_to("f")
    protected = tuple(str(stage.work / each) for each in ("link", "a/b", "pipe", "missing", "missing/deep"))
    opened = bubblewrap.open(replace(stage.box(), protected=protected))
    code, output = await run_in_sandbox(opened, "rm pipe; echo x > a/b/new; echo x > f; echo new > other", PATH)
    opened.close()
    assert code == 0, output
    assert (stage.work / "f").read_text() == "b\na\nc\n", "the link leads to it"
    assert [(stage.work / each).exists() for each in ("pipe", "a/b/new", "missing", "other")] == [
        True,
        False,
        False,
        True,
    ]


async def test_what_lies_below_a_hidden_folder_may_be_protected_or_hidden_itself(
    bubblewrap: Bubblewrap, stage: Stage
) -> None:
    inside = str(stage.work / "a/b")
    opened = bubblewrap.open(replace(stage.box(), hidden=(str(stage.work / "a"), inside), protected=(inside,)))
    code, output = await run_in_sandbox(opened, "ls a", PATH)
    opened.close()
    assert (code != 0, "ermission denied" in output) == (True, True), output


async def test_whoever_knows_a_command_keeps_its_box_until_the_sandbox_is_closed(stage: Stage) -> None:
    sandbox = Bubblewrap()
    process = await sandbox.open(stage.box()).spawn("sleep", ["100"], environment=PATH)
    assert process.exit_code is None
    sandbox.close()
    assert await process.wait() == -signal.SIGKILL


async def test_more_protected_files_than_can_be_mounted_are_refused_in_words(
    bubblewrap: Bubblewrap, stage: Stage
) -> None:
    (stage.work / "many").mkdir()
    for number in range(4_001):
        (stage.work / f"many/{number}").touch()
    protected = tuple(str(stage.work / f"many/{number}") for number in range(4_001))
    with pytest.raises(SandboxUnavailable, match=r"4,005 files and folders would .* Use patterns"):
        bubblewrap.open(replace(stage.box(), protected=protected))


async def test_a_forked_process_opens_boxes_of_its_own(bubblewrap: Bubblewrap, stage: Stage) -> None:
    child = os.fork()
    if not child:
        os._exit(0 if can_open(stage) else 1)
    assert os.waitstatus_to_exitcode(await asyncio.to_thread(lambda: os.waitpid(child, 0)[1])) == 0


def can_open(stage: Stage) -> bool:
    opened = Bubblewrap().open(stage.box())
    is_open = opened.is_open
    opened.close()
    return is_open and not opened.is_open


async def test_no_space_for_temporary_files_is_told(
    landlock: Landlock, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc")
    with pytest.raises(SandboxUnavailable, match=r"The sandbox cannot be started: .*'/proc/journeyman-box-"):
        landlock.open(stage.box())
