"""What each face says of a run is the same: the page and its list, the commands, a handle, the server, and the result.

One store has runs of every kind: ended in each way, alone and durable, recorded and not; of a crew, a chat, a team and
a batch; served; waiting, held, blocked, and those whose process has died.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest

from journeyman import Agent, Chat, Result, Runtime, run_many
from journeyman.cli.show.tree import outline_lines
from journeyman.definition.data import copy_with
from journeyman.durable import Durable, RunInfo
from journeyman.durable.rules import RowRule
from journeyman.events import Event
from journeyman.events.json_form import told_of
from journeyman.events.run_status import GOES_ON, RunStatus
from journeyman.events.run_view import RunViews
from journeyman.record import RecordedEvent, Recorder, Recordings
from journeyman.record.recorder import DELTAS
from journeyman.testing.scripted import ScriptedModel, call, say
from journeyman.types import adapter_of
from journeyman.view.queries import Filters, StoreReader
from tests.cli.program import Warm
from tests.loop.test_endings import ENDINGS
from tests.play import Door, Stage
from tests.serve.http_served import clerk, serving, waiter
from tests.view.desk import asking
from tests.view.provider import Provider
from tests.view.stores import record_crew, record_lives, record_reader, record_team

LOOK = say(call("look", {"topic": "tides"}))
USED = ("tokens", "cost")
LEFT = {"status": "running", "owner": "somebody"}
COLUMNS = ("status", "code", "attempts", "iterations", "calls", "tokens", "cost", "events", "view")
TOKENS = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")
Told = Mapping[str, Mapping[str, Any]]
"""By the id of a run, what a face says of it."""


def of_result(result: Result[Any]) -> dict[str, Any]:
    told, code = result.metadata, None if result.code == "SUCCESS" else result.code
    status = {None: "done", "EXECUTION_CANCELLED": "cancelled"}.get(code, "failed")
    iterations, tokens = sum(each.iterations for each in told.attempts), told.usage.total_tokens if told.usage else 0
    return dict(
        zip(COLUMNS[:7], (status, code, len(told.attempts), iterations, told.n_calls, tokens, told.cost), strict=True)
    )


def of_run(run: Mapping[str, Any]) -> dict[str, Any]:
    tokens = sum(run["usage"][name] or 0 for name in TOKENS)
    return {name: run[name] for name in COLUMNS[:5]} | {"tokens": tokens, "cost": run["usage"]["cost"]}


def of_info(run: Mapping[str, Any], *also: str) -> dict[str, Any]:
    """Return what is said of a durable run. What it used is known once it was given back, and `also` before."""
    if run["status"] in ("running", "died"):
        return {name: run[name] for name in ("status", *also)}
    code = run.get("reason") if run["status"] in ("failed", "cancelled") else None
    return {"attempts": run.get("attempt"), "code": code, **{name: run[name] for name in ("status", "tokens", "cost")}}


def of_events(told: Sequence[RecordedEvent]) -> dict[str, Any]:
    """Return what is told, live or stored, and what all of it comes to when it is folded."""
    views = RunViews(keeps_roots=True)
    for each in told:
        views.take(each)
    events = [copy_with(each, n=0, at=0.0) for each in told]
    return {"events": str(events), "view": str([*outline_lines(views.roots)])}


async def begin_runs(path: Path, recorder: Recorder) -> tuple[dict[str, Result[Any]], dict[str, list[RecordedEvent]]]:
    """Begin runs of every kind. Return the results of those that have one and have started no other, by id, and what
    was heard of some of them."""
    runtime, ended, heard = Runtime(recorder=recorder), dict[str, Result[Any]](), dict[str, list[RecordedEvent]]()
    async with Durable(path, suspend_after_s=0.01) as durable, Provider() as provider:
        for name, case in ENDINGS.items():
            events = list[Event]()
            result = await case.run(Stage(over_http=False), runtime=runtime, on_event=events.append)
            await recorder.flush()
            with Recordings(path) as recordings:
                id = recordings.find("last").id
            ended[id], heard[id] = result, [told_of(each) for each in events if type(each) not in DELTAS]
            for id, around in ((f"kept {name}", runtime), (f"lone {name}", Runtime())):
                result = await case.run(Stage(over_http=False), durable.run, id=id, runtime=around)
                ended |= {info.id: result for info in await durable.list(limit=1) if info.name == id}
        await record_crew(recorder, provider)
        await record_reader(recorder, provider)
        await record_team(recorder)
        async with Chat.open(Agent(name="a", model=ScriptedModel(["Yes."])), durable, runtime=runtime) as chat:
            await chat.prompt("What?")
        async for _ in run_many(asking(LOOK), ["a", "b"], runtime=runtime):
            pass
        for around in (runtime, Runtime()):
            handles = [await durable.start(asking(LOOK), "What?") for _ in range(5)]
            for handle in handles[1:]:
                await durable.resume(handle.id, asking(LOOK), runtime=around)
            await handles[2].hold()
            for handle, facts in zip(handles[3:], ({"status": "blocked", "why": "it differs"}, LEFT), strict=True):
                rule = RowRule(lambda row, _, facts=facts: copy_with(row, **facts))
                await durable.hub.engine.change(handle.id, rule, now=0.0)
    return ended, heard


@pytest.fixture(scope="module")
async def faces(tmp_path_factory: pytest.TempPathFactory, warm: Warm) -> AsyncIterator[Mapping[str, Told]]:
    """What each face says of the runs."""
    path = tmp_path_factory.mktemp("faces") / "runs.db"
    with Recorder(path) as recorder:
        ended, heard = await begin_runs(path, recorder)
    record_lives(path, warm)
    async with serving([clerk(), waiter(Door())], store=str(path)) as served:
        for agent, text, id in (("clerk", "Hello.", "a"), ("clerk", "send", "b"), ("waiter", "?", "c")):
            said = {"idempotency_key": id, "prefer": "respond-async"}
            assert (await served.ask("POST", f"/agents/{agent}/runs", {"input": text}, **said))[0] == 202
        await served.waiting("/runs/b")
        await served.ask("POST", "/runs/c/stop", {"reason": "enough"})
        assert (await served.ended("a"))["code"] == "SUCCESS"
        assert (await served.ended("c"))["error"]["context"]["reason"] == "enough"
        documents = [(await served.ask("GET", f"/runs/{id}"))[1] for id in "abc"]
        async with Durable(path) as durable:
            infos = await durable.list(limit=1_000)
            assert [await (await durable.get(info.id)).info() for info in infos] == [*infos]
        ids = {(info.name or "").rpartition(":")[2]: info.id for info in infos}
        reader, told = StoreReader(path), {each.kind for events in heard.values() for each in events}
        events_of = reader.recordings.all_events
        stored = {id: [*events_of(reader.recordings.find(id), kinds=[*told])] for id in heard}
        listed = reader.runs(Filters(), before=None, limit=1_000)["runs"]
        forgotten = warm("prune", "--older-than", "0s", "--dry-run", "--store", path).stdout.split()
        assert forgotten
        assert {run["id"] for run in listed if run["status"] in GOES_ON}.isdisjoint(forgotten)
        assert all(run["status"] in run["why"] for run in listed if not run["is_recorded"] and run["ended"] is None)
        counted = len(listed), sum(run["status"] in ("failed", "cancelled") for run in listed)
        assert tuple(sum(day[name] for day in reader.days(2)["days"]) for name in ("runs", "failed")) == counted
        assert reader.store(read_only=True)["runs"] == len(listed)
        command = json.loads(warm("runs", "--json", "-n", "1000", "--store", path).stdout)
        yield {
            "result": {id: of_result(result) for id, result in ended.items()},
            "listener": {id: of_events(events) for id, events in heard.items()},
            "recording": {id: of_events(events) for id, events in stored.items()},
            "list": {run["id"]: of_run(run) for run in listed},
            "page": {run["id"]: of_run(reader.run(run["id"])) for run in listed},
            "command": {run["id"]: of_run(run) for run in command["runs"]},
            "command, durable": {run["id"]: of_info(run, *USED) for run in command["runs"] if run["kind"] == "durable"},
            "handle": {info.id: of_info(adapter_of(RunInfo).dump_python(info)) for info in infos},
            "server": {ids[run["id"]]: of_info(run) for run in documents},
        }
        reader.close()


@pytest.mark.parametrize("column", COLUMNS)
async def test_every_face_says_the_same_of_a_run(faces: Mapping[str, Told], column: str) -> None:
    ids = {id for told in faces.values() for id in told}
    assert len(ids) > 100
    assert column != "status" or {run[column] for run in faces["list"].values()} == {*get_args(RunStatus)}
    for id in ids:
        said = {face: told[id][column] for face, told in faces.items() if told.get(id, {}).get(column) is not None}
        assert len({*said.values()}) < 2, (id, said)
