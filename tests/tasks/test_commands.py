"""Commands in the background: real processes, read while they run, and all of them gone when the task is over."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from journeyman import Agent, Chat, Runtime, Tasks
from journeyman.testing.scripted import ScriptedModel, call
from journeyman.toolbox import Shell, Workspace
from tests.play import answered, existing
from tests.tasks.works import Told

LEAVES_OTHERS = "sleep 1000 & setsid sleep 1000 & echo $$ > pid; mkfifo ready; echo begun; cat ready; sleep 1000"
"""A shell with processes in its group and outside of it. It begins to wait once somebody wrote to `ready`."""


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(tmp_path, shell=Shell(grace_s=0.2)) as workspace:
        yield workspace


async def begun(workspace: Workspace, tasks: Tasks, command: str, **arguments: object) -> str:
    """Start a command as a model does, and return what the model reads."""
    (bash,) = workspace.tools("bash")
    result = await answered(bash, {"command": command, "background": True, **arguments}, runtime=Runtime(tasks=tasks))
    return result.text


async def written(tasks: Tasks, id: str, text: str) -> None:
    """Wait until a task has written something."""
    async with asyncio.timeout(30):
        while text not in tasks.output(id):  # noqa: ASYNC110 - a process tells nobody
            await asyncio.sleep(0.005)


def alive_with(mark: str) -> list[int]:
    """Return the living processes with a text in their environment."""
    found: list[int] = []
    for each in Path("/proc").iterdir():
        try:
            if mark.encode() in each.joinpath("environ").read_bytes():
                state = each.joinpath("stat").read_text().rpartition(")")[2].split()[0]
                found += [int(each.name)] if state not in "ZX" else []
        except OSError:
            continue
    return found


async def test_a_command_in_the_background_is_a_task_with_its_result_and_exit_code(workspace: Workspace) -> None:
    told = Told()
    async with Tasks(notify=told) as tasks:
        text = await begun(workspace, tasks, "echo one; echo two >&2; printf three")
        assert text == "Started in the background as task sh-1."
        await tasks.wait()
        info = tasks.get("sh-1")
        assert (info.kind, info.status, info.exit_code) == ("shell", "completed", 0)
        assert info.result == "one\ntwo\nthree\n[exit code 0]"
        assert info.command == "echo one; echo two >&2; printf three"
        assert tasks.output("sh-1") == "one\ntwo\nthree"
    assert told.ended == [("sh-1", "completed")]
    assert "<exit-code>0</exit-code>" in told.notes[0][0]
    assert "<result>" not in told.notes[0][0]


async def test_a_command_that_fails_is_a_failed_task_with_its_exit_code(workspace: Workspace) -> None:
    async with Tasks() as tasks:
        await begun(workspace, tasks, "echo begun; exit 3")
        await tasks.wait()
        info = tasks.get("sh-1")
        assert (info.status, info.error, info.exit_code, info.result) == ("failed", "exit code 3", 3, None)
        (output,) = [each for each in tasks.tools() if each.name == "task_output"]
        text = (await answered(output, {"id": "sh-1"})).text
        assert text.partition("\n")[2] == "begun\n[failed: exit code 3]"


async def test_its_output_can_be_read_while_it_runs(workspace: Workspace, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    async with Tasks() as tasks:
        await begun(workspace, tasks, "echo waiting; read -r line < go; echo got $line")
        await written(tasks, "sh-1", "waiting")
        assert tasks.get("sh-1").is_running
        await asyncio.to_thread((tmp_path / "go").write_text, "on\n")
        await tasks.wait()
        assert tasks.output("sh-1") == "waiting\ngot on"


async def test_every_line_it_writes_is_kept_in_its_output_file(workspace: Workspace, tmp_path: Path) -> None:
    async with Tasks(output=tmp_path / "out") as tasks:
        await begun(workspace, tasks, "seq 1 20000")
        await tasks.wait()
        path = tasks.get("sh-1").output_path
    lines = Path(existing(path)).read_text().splitlines()
    assert (len(lines), lines[0], lines[-1]) == (20_000, '{"text": "1"}', '{"text": "20000"}')


@pytest.mark.parametrize("how", ["stop", "leave"])
async def test_a_stop_ends_the_command_with_all_its_processes(  # S16.6
    workspace: Workspace, tmp_path: Path, how: str
) -> None:
    async with Tasks() as tasks:
        await begun(workspace, tasks, f"export MARKED={tmp_path}; {LEAVES_OTHERS}")
        await written(tasks, "sh-1", "begun")
        await asyncio.to_thread((tmp_path / "ready").write_text, "go\n")
        assert len(alive_with(f"MARKED={tmp_path}")) >= 2
        if how == "stop":
            assert tasks.stop("sh-1")
            await tasks.wait()
            assert alive_with(f"MARKED={tmp_path}") == []
    info = tasks.get("sh-1")
    assert (info.status, info.exit_code, info.error) == ("killed", None, None)
    assert alive_with(f"MARKED={tmp_path}") == []


async def test_its_time_is_ten_minutes_unless_the_workspace_or_the_model_says_less(tmp_path: Path) -> None:
    assert Shell().background_s == 600
    with Workspace(tmp_path, shell=Shell(grace_s=0.2, background_s=0.3)) as short:
        async with Tasks() as tasks:
            await begun(short, tasks, "sleep 100")
            await begun(short, tasks, "sleep 100", timeout_s=0.1)
            await begun(short, tasks, "sleep 100", timeout_s=1_000)
            await tasks.wait()
            assert {(info.status, info.exit_code) for info in tasks.list()} == {("failed", None)}
            late = [f"timed out after {seconds} s and was ended with all its processes" for seconds in (0.3, 0.1, 0.3)]
            assert [info.error for info in tasks.list()] == late


async def test_a_long_command_is_described_by_its_beginning(workspace: Workspace) -> None:
    async with Tasks() as tasks:
        for command in ("true\ntrue", f"true {'x' * 100}", "true"):
            await begun(workspace, tasks, command)
        await tasks.wait()
        assert [info.description for info in tasks.list()] == ["true…", f"true {'x' * 75}…", "true"]


async def test_a_chat_is_told_when_its_command_has_ended(workspace: Workspace) -> None:
    script = ScriptedModel([call("bash", command="exit 3", background=True), "It runs.", "It failed."])
    agent = Agent(name="lead", model=script, tools=workspace.tools("bash"))
    async with Tasks() as tasks, Chat(agent, runtime=Runtime(tasks=tasks)) as chat:
        await chat.prompt("Run it.")
        await tasks.wait()
        if chat.messages[-1].text == "It runs.":
            await chat.continue_()
        assert chat.messages[-1].text == "It failed."
        assert "<error>exit code 3</error>" in chat.messages[-2].text
