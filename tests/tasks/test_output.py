"""What a task writes down: JSON lines in a file, the last of it in memory, and what goes wrong makes the task fail."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from journeyman import Tasks
from journeyman.tools.background import KEPT_CHARS, TaskContext, Writer
from tests.support.clock import virtual_clock
from tests.tasks.players import giving


async def writing(task: TaskContext) -> str:
    task.write("half of it\n<done>")
    task.write({"tool": "dig", "input": {"depth": 2, "where": {1, 2} and Path("garden")}})
    task.write("odd: \ud800")
    return "written"


async def test_each_task_writes_json_lines_to_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "bg-1.jsonl").write_text("of an earlier program\n")
    async with Tasks(output=tmp_path / "out") as tasks:
        for _ in range(2):
            tasks.start(writing, description="write")
        await tasks.wait()
        paths = [info.output_path for info in tasks.list()]
    assert paths == [str(tmp_path / "out" / name) for name in ("bg-1-2.jsonl", "bg-2.jsonl")]
    assert (tmp_path / "out" / "bg-1.jsonl").read_text() == "of an earlier program\n"
    lines = (tmp_path / "out" / "bg-2.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines[:2]] == [
        {"text": "half of it\n<done>"},
        {"tool": "dig", "input": {"depth": 2, "where": "garden"}},
    ]
    assert lines[2] == '{"text": "odd: \\ud800"}'


async def test_the_file_can_be_read_while_the_task_runs(tmp_path: Path) -> None:
    async def work(task: TaskContext) -> None:
        task.write("half of it")
        half.set()
        await done.wait()

    half, done = asyncio.Event(), asyncio.Event()
    async with Tasks(output=str(tmp_path)) as tasks:
        id = tasks.start(work, description="write")
        await half.wait()
        path = tasks.get(id).output_path
        assert path is not None
        assert (Path(path).read_text(), tasks.output(id)) == ('{"text": "half of it"}\n', "half of it")
        done.set()
        await tasks.wait()


async def test_the_last_of_the_output_stays_in_memory() -> None:
    async def work(task: TaskContext) -> None:
        for n in range(1_000):
            task.write(f"{n:06} {'x' * 100}")
        task.write("y" * 3 * KEPT_CHARS)
        task.write({"n": 1})

    async with Tasks() as tasks:
        tasks.start(work, description="write")
        await tasks.wait()
        output = tasks.output("bg-1")
    assert output == '[1,001 lines before this.]\n{"n": 1}'


async def test_a_long_output_keeps_its_last_lines() -> None:
    async def work(task: TaskContext) -> None:
        for n in range(10_000):
            task.write(f"{n:09}")

    async with Tasks() as tasks:
        tasks.start(work, description="write")
        await tasks.wait()
        lines = tasks.output("bg-1").splitlines()
    assert (lines[0], lines[1], lines[-1], len(lines)) == (
        "[5,000 lines before this.]",
        "000005000",
        "000009999",
        5_001,
    )


class Paper:
    """A writer that can fail."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.lines: list[str] = []
        self.n_closed = 0

    def write(self, text: str, /) -> None:
        if self.fails == "write" and self.lines:
            raise OSError("the paper is full")
        self.lines.append(text)

    def close(self) -> None:
        self.n_closed += 1
        if self.fails == "close":
            raise OSError("the paper is torn")


@pytest.mark.parametrize(
    ("fails", "work_fails", "error"),
    [
        ("write", False, "cannot write the output: OSError: the paper is full"),
        ("write", True, "ValueError: sand; cannot write the output: OSError: the paper is full"),
        ("close", False, "cannot close the output: OSError: the paper is torn"),
        ("close", True, "ValueError: sand; cannot close the output: OSError: the paper is torn"),
        ("", True, "ValueError: sand"),
    ],
)
async def test_what_goes_wrong_with_the_output_makes_the_task_fail(fails: str, work_fails: bool, error: str) -> None:
    paper = Paper(fails)

    async def work(task: TaskContext) -> str:
        for n in range(3):
            task.write(f"line {n}")
        if work_fails:
            raise ValueError("sand")
        return "done"

    async with Tasks(output=lambda id, subject: (paper, f"paper of {subject}")) as tasks:
        tasks.start(work, description="write", agent="scout")
        await tasks.wait()
        info = tasks.get("bg-1")
        assert (info.status, info.error, info.result, info.output_path) == ("failed", error, None, "paper of scout")
    assert (len(paper.lines), paper.n_closed) == (1 if fails == "write" else 3, 1)


async def test_if_the_output_cannot_be_opened_the_work_is_never_begun() -> None:
    def no_paper(id: str, subject: str) -> tuple[Writer, str]:
        raise OSError(f"no paper for {id}, {subject}")

    begun: list[str] = []

    async def work(task: TaskContext) -> None:
        begun.append(task.id)

    async with Tasks(output=no_paper) as tasks:
        tasks.start(work, description="write")
        await tasks.wait()
        assert tasks.get("bg-1").error == "cannot open the output: OSError: no paper for bg-1, write"
    assert begun == []


@virtual_clock
async def test_a_stopped_task_is_killed_also_when_its_output_breaks() -> None:
    async def work(task: TaskContext) -> None:
        await asyncio.sleep(100)

    paper = Paper("close")
    async with Tasks(output=lambda id, subject: (paper, "paper")) as tasks:
        tasks.start(work, description="write")
        await asyncio.sleep(1)
        tasks.stop("bg-1")
        await tasks.wait()
        info = tasks.get("bg-1")
        assert (info.status, info.error) == ("killed", "cannot close the output: OSError: the paper is torn")


async def test_the_output_of_one_task_may_be_opened_elsewhere_and_asynchronously() -> None:
    paper = Paper()

    async def opened(id: str, subject: str) -> tuple[Writer, str]:
        await asyncio.sleep(0)
        return paper, f"{id}/{subject}"

    async with Tasks() as tasks:
        tasks.start(writing, description="write", output=opened)
        tasks.start(giving("x"), description="give")
        await tasks.wait()
        assert [info.output_path for info in tasks.list()] == ["bg-1/write", None]
    assert len(paper.lines) == 3
