"""Every run of a test with a journal: the tests of the loop and of the crews a second time.

A run that is given no journal, and is no part of another run, gets a new one: the journal of a durable run, claimed on
an engine as `Durable` claims it; with `--journal=sqlite` on a file. So what the tests say of runs holds of durable
runs, too. What is put in place of ours is `begin`, where three modules call it: it adds the journal to the options of a
run, and then does what it did.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

from journeyman.agent import Agent, Runtime
from journeyman.chat import runs as of_chats
from journeyman.durable.engine import Engine
from journeyman.durable.journal import Exit, Lease, RunJournal
from journeyman.durable.memory import InMemoryEngine, Memory
from journeyman.durable.records import Row
from journeyman.durable.sqlite import SqliteEngine
from journeyman.journal import new_id
from journeyman.loop import run as of_the_loop
from journeyman.loop.prepare import begin
from journeyman.loop.state import Options, Run, run_context
from journeyman.store.client import run_now
from journeyman.subagents import delegation as of_subagents
from tests.support.clock import VirtualClock

WITHOUT_JOURNAL: Final[Mapping[str, str]] = {
    "loop/test_replay.py::test_a_state_that_may_be_anything_is_refused_where_it_would_have_to_be_stored": (
        "it says that without a journal such a state is none of its business"
    ),
    "loop/test_state.py::test_new_state_replaces_the_old_whole": (
        "a call makes of the state what its function does not declare, which a journal refuses"
    ),
}
"""The tests that have no second turn, each with the reason."""


class LeftToItself(RunJournal):
    """The journal of a run that nobody drives: nobody answers through it either, so whoever is given as `approve` is
    asked."""

    @property
    def waits(self) -> bool:
        return False


class OwnProcess:
    """A process in which no other run is driven, and to which nothing comes."""

    keeps_steps = True

    def __init__(self, engine: Engine) -> None:
        self.engine, self.now = engine, time.time

    async def look(self) -> bool:
        return False


class Journals:
    """Makes a journal for each run of a test: in files of their own in this folder, or in memory."""

    def __init__(self, folder: Path | None = None) -> None:
        self.memory = Memory()
        self._folder = folder
        self._opened: list[Engine] = []

    def begin(self, agent: Agent[Any, Any], input: object, options: Options) -> Run:
        """Open the record of a run, with a journal."""
        is_sound = isinstance(options.runtime, Runtime)  # pyright: ignore[reportUnnecessaryIsInstance] - tests give others
        if is_sound and options.runtime.journal is None and run_context.get().run is None:
            options = replace(options, runtime=replace(options.runtime, journal=self.made(agent.name)))
        return begin(agent, input, options)

    def made(self, agent: str) -> RunJournal:
        now = time.time()
        engine = self._engine()
        row = Row(id=new_id(now), name=None, agent=agent, head=b"{}", created=now, status="ready")
        run_now(engine.add(row))
        claim = run_now(engine.claim(row.id, now=now))
        assert claim is not None
        return LeftToItself(Lease(OwnProcess(engine), claim, (), leave=left, stir=lambda: None))

    def _engine(self) -> Engine:
        # A clock that jumps would jump while the disk works.
        if self._folder is None or isinstance(asyncio.get_running_loop(), VirtualClock):
            return InMemoryEngine(self.memory)
        engine = SqliteEngine(self._folder / f"{len(self._opened)}.db")
        run_now(engine.open())
        self._opened.append(engine)
        return engine

    def close(self) -> None:
        for engine in self._opened:
            run_now(engine.close())


def left(leaving: Exit) -> NoReturn:
    """Fail: nobody else drives the runs of a test, and nothing is wrong with what is stored of them."""
    raise AssertionError(f"A run cannot go on: {leaving}") from leaving.error


@pytest.fixture(autouse=True)
def journaled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give a journal to each run of the test, if this is its turn with one."""
    how: str = getattr(request, "param", "plain")  # a test of a class has one turn
    if how == "plain":
        yield
        return
    journals = Journals(tmp_path_factory.mktemp("journaled") if how == "sqlite" else None)
    with closing(journals), pytest.MonkeyPatch.context() as patch:
        for module in (of_chats, of_the_loop, of_subagents):
            patch.setattr(module, "begin", journals.begin)
        yield


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let each test have a second turn, with a journal, but for those that say something of runs without one."""
    path = metafunc.definition.path
    where = str(metafunc.config.getoption("journal"))
    turns = {"plain": pytest.HIDDEN_PARAM, where: "journaled"}
    if f"{path.parent.name}/{path.name}::{metafunc.definition.name}" in WITHOUT_JOURNAL:
        turns = {"plain": pytest.HIDDEN_PARAM}
    metafunc.parametrize("journaled", list(turns), ids=list(turns.values()), indirect=True)


def is_needless(item: pytest.Item) -> bool:
    """Tell whether a test has both a journal and a wire, which know nothing of each other, and has turns with one."""
    given = _given(item)
    is_only_wired = any("stage" in mark.args for mark in item.iter_markers("parametrize"))
    return given.get("journaled", "plain") != "plain" and given.get("stage") == "over http" and not is_only_wired


def is_second_turn(item: pytest.Item) -> bool:
    """Tell whether a test has another turn, in which it has no journal and no wire."""
    given = _given(item)
    is_only_wired = any("stage" in mark.args for mark in item.iter_markers("parametrize"))
    return given.get("journaled", "plain") != "plain" or (given.get("stage") == "over http" and not is_only_wired)


def _given(item: pytest.Item) -> Mapping[str, object]:
    return item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
