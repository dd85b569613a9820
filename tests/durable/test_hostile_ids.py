"""A provider chooses the ids of calls: whatever they are, a run that died ends as one that nobody killed."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from journeyman import Agent, Limits, Runtime, Subagents, run, tool
from journeyman.durable.records import seal_record
from journeyman.gate import Allow, Approval, Ask, Decision
from journeyman.journal import InMemoryJournal, new_id
from journeyman.testing.scripted import call
from journeyman.types import ToolUse
from tests.durable.processes import Stage
from tests.durable.test_every_death import Kept, following, seen
from tests.play import make_gate, virtual_clock
from tests.support.lines_journal import LinesJournal

_LONG: Final = "i" * 9_000
# The steps below a call are named after it: the second id of each line would name one of them.
HOSTILE: Final = {
    "below another": ["a", "a/single/0/head", "a/single/0/attempt/1/iteration/1/call/a", "a/single/0/end"],
    "empty": ["", "/single/0/head", "/", "//", "../a"],
    "escaped": ["a/b", "a/b/single/0/head", "a%2Fb", "a%252Fb", "%", "%25/single/0/end"],
    "of other alphabets": ["a\n", "a\n/single/0/head", "a", "\t", "é🎉", "a\x00b", "\ud800"],
    "very long": [_LONG, f"{_LONG}/single/0/head", f"{_LONG}2", "ü" * 9_000],
}
_IDS: Final = st.lists(st.text("a/%2F\n\x00é", max_size=4) | st.just("a/single/0/end"), min_size=2, max_size=4)


def agent_of(ids: Sequence[str]) -> Agent[Any, Any]:
    """Return an agent whose calls have these ids, one of them a sub-agent's, whose calls have the same."""

    @tool(effect="idempotent")
    def work(n: int) -> str:
        """Work."""
        return f"did {n}"

    def calls(first: int) -> list[ToolUse]:
        return [call("work", n=first + n, id=id) for n, id in enumerate(ids)]

    clerk = Agent(name="clerk", description="Works.", model=following(calls(0), "Found."), tools=[work])
    delegated = [call("subagent", agent="clerk", task="Go.", id=ids[0]), *calls(10)[1:]]
    model, limits = following(delegated, calls(20)[::-1], "Done."), Limits(calls=40, tokens=100_000)
    return Agent(
        name="lead", model=model, tools=[work, Subagents(clerk)], gate=make_gate(Ask("May it?")), limits=limits
    )


async def approve(_: Approval) -> Decision:
    """Allow each call."""
    return Allow()


RUNTIME: Final = Runtime(approver=approve)


async def _check_deaths_in_a_journal(ids: Sequence[str], path: Path | None = None, *, each: int = 1) -> None:
    expected, whole = seen(await run(agent_of(ids), "Go.", runtime=RUNTIME)), Kept()
    assert seen(await run(agent_of(ids), "Go.", runtime=replace(RUNTIME, journal=whole))) == expected
    for n_steps in range(1, len(whole.written), each):
        journal = InMemoryJournal() if path is None else LinesJournal(path / f"{n_steps}")
        for key, value in whole.written[:n_steps]:
            journal.put(key, value)
        result = await run(agent_of(ids), "Go.", runtime=replace(RUNTIME, journal=journal))
        assert seen(result) == expected, f"after {whole.written[n_steps - 1][0][:200]}"


@pytest.mark.parametrize("ids", HOSTILE.values(), ids=HOSTILE)
async def test_a_death_changes_nothing_in_a_journal_whatever_the_ids_of_calls_are(
    ids: list[str], tmp_path: Path
) -> None:
    await _check_deaths_in_a_journal(ids, each=3)
    await _check_deaths_in_a_journal(ids, tmp_path, each=5)


@settings(deadline=None, max_examples=settings().max_examples // 4)
@given(ids=_IDS)
async def test_a_death_changes_nothing_whatever_the_ids_of_calls_are(ids: list[str]) -> None:
    await _check_deaths_in_a_journal(ids, each=4)


@pytest.mark.parametrize("ids", HOSTILE.values(), ids=HOSTILE)
@virtual_clock
async def test_a_death_changes_nothing_in_a_durable_run_whatever_the_ids_of_calls_are(
    stage: Stage, ids: list[str]
) -> None:
    expected = seen(await run(agent_of(ids), "Go.", runtime=RUNTIME))
    async with stage.durable() as durable:
        assert seen(await durable.run(agent_of(ids), "Go.", id="whole", runtime=RUNTIME)) == expected
        engine = durable.hub.engine
        row = await durable.hub.row((await engine.rows())[0].id)
        records = await engine.records(row.id)
        for n_steps in range(1, len(records), 4):
            left = replace(row, id=new_id(row.created), name=f"{n_steps}", status="ready", ended=None, owner=None)
            left = replace(left, used_s=0.0, tokens=0, cost=0.0)
            await engine.add(left, [seal_record(each._replace(run=left.id)) for each in records[:n_steps]])
            result = await durable.run(agent_of(ids), "Go.", id=f"{n_steps}", runtime=RUNTIME)
            assert seen(result) == expected, f"after {records[n_steps - 1].key[:200]}"
