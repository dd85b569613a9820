"""Turns of chats that wait while their server is closed, or that another server of the store has: one path drives them,
and those who follow hear of it at either."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from journeyman import Agent
from journeyman.durable import Durable, InMemoryEngine, Memory
from journeyman.durable.records import Change, Claim
from journeyman.events import QuestionAsked
from journeyman.serve.agui import Agui, Segment
from journeyman.serve.live import Live, ServeLimits
from journeyman.testing.scripted import call
from journeyman.tools.external import external_question
from tests.durable.processes import Process, claimed
from tests.play import following
from tests.serve.http_served import AskFirst, Json, Served, clerk, send, serving
from tests.serve.test_agui import TOOLS, asked, painter, results, shown, told

ALLOW = {"decision": "allow"}
DETACHED = {"prefer": "respond-async"}


def twice() -> Agent[str, str]:
    """Return an agent that asks about two letters, one after the other."""

    letters = [call("send", letter=f"letter {number}", id=f"call{number}") for number in range(2)]
    model = following(*letters, "Both are sent.", repeat=True)
    return Agent(name="clerk", model=model, tools=[send], gate=AskFirst())


@asynccontextmanager
async def server(store: str, *agents: Agent[str, str], suspend_after_s: float = 600.0) -> AsyncGenerator[Served]:
    """Serve agents from a store in which what waits leaves memory after so many seconds."""
    async with (
        Durable(store, suspend_after_s=suspend_after_s) as durable,
        serving(agents or [clerk()], store=durable) as served,
    ):
        yield served


async def begun(served: Served, text: str = "send") -> Json:
    """Begin a turn, and return what it asks."""
    await served.ask("POST", "/agents/clerk/chats/c/turns", {"input": text}, **DETACHED)
    return await served.waiting("/chats/c")


async def answer(served: Served, question: Json) -> int:
    return (await served.ask("POST", f"/chats/c/answers/{question['id']}", ALLOW))[0]


def kinds(events: list[Json]) -> list[str]:
    return [each["event"] for each in events]


def numbers(events: list[Json]) -> list[int]:
    """Return the numbers of events, as far as they have no other id."""
    return [int(each["id"]) for each in events if (each["id"] or "").isdecimal()]


async def next_question(served: Served, before: Json) -> Json:
    while (question := await served.waiting("/chats/c"))["id"] == before["id"]:
        pass
    return question


async def test_a_client_that_comes_back_after_a_restart_hears_what_happens_from_then_on(tmp_path: Path) -> None:
    store = str(tmp_path / "runs.db")
    async with server(store) as served:
        await begun(served)
        async with served.client.get(f"{served.url}/chats/c/events") as response:
            read = ""
            while "ApprovalRequested" not in read:
                read += (await response.content.readany()).decode()
    last = read.rpartition("\nid: ")[2].partition("\n")[0]
    async with server(store) as served:
        following = asyncio.create_task(served.told("GET", "/chats/c/events", last_event_id=last))
        assert await answer(served, await served.waiting("/chats/c")) == 202
        after = await following
        assert after[-1]["output"] == "It is sent."
        assert {"ApprovalAnswered", "ToolFinished", "RunSucceeded"} <= {*kinds(after)}
        assert min(numbers(after)) > int(last)


@pytest.mark.parametrize("suspend_after_s", [0.01, 600.0])
async def test_a_turn_that_nobody_asks_for_after_a_restart_goes_on_and_can_be_followed(
    tmp_path: Path, suspend_after_s: float
) -> None:
    store = str(tmp_path / "runs.db")
    async with server(store, twice(), suspend_after_s=suspend_after_s) as served:
        first = await begun(served)
    async with server(store, twice(), suspend_after_s=suspend_after_s) as served:
        assert (await answer(served, first), await answer(served, first)) == (202, 409)
        second = await next_question(served, first)
        _, chat = await served.ask("GET", "/chats/c")
        assert [each["id"] for each in chat["questions"]] == [second["id"]], "what was answered is not open"
        following = asyncio.create_task(served.told("GET", "/chats/c/events"))
        await answer(served, second)
        events = await following
        assert events[-1]["output"] == "Both are sent."
        assert kinds(events).count("ToolFinished") == 2
        assert (await served.ask("GET", "/chats/c"))[1]["questions"] == []


async def test_a_turn_that_only_waits_leaves_memory_and_its_followers_hear_of_the_rest(tmp_path: Path) -> None:
    store = str(tmp_path / "runs.db")
    async with server(store, twice(), suspend_after_s=0.01) as served, Durable(store) as other:
        first = await begun(served)
        following = asyncio.create_task(served.told("GET", "/chats/c/events"))
        while (await other.hub.row("chat/public:c/1")).status != "waiting":
            await other.hub.changed()
        await answer(served, first)
        await answer(served, await next_question(served, first))
        events = await following
        assert kinds(events).count("ApprovalRequested") == kinds(events).count("ApprovalAnswered") == 2
        assert events[-1]["output"] == "Both are sent."
        assert numbers(events) == sorted({*numbers(events)})


@pytest.mark.parametrize("suspend_after_s", [0.01, 600.0])
@pytest.mark.parametrize("is_stopped", [False, True])
async def test_an_answer_or_a_stop_reaches_a_turn_at_either_server_and_both_hear_of_its_end(
    tmp_path: Path, suspend_after_s: float, is_stopped: bool
) -> None:
    store = str(tmp_path / "runs.db")
    async with (
        server(store, suspend_after_s=suspend_after_s) as one,
        server(store, suspend_after_s=suspend_after_s) as two,
    ):
        question = await begun(one)
        followings = [asyncio.create_task(each.told("GET", "/chats/c/events")) for each in (one, two)]
        if is_stopped:
            assert (await two.ask("POST", "/chats/c/stop", {}))[0] == 202
        else:
            assert await answer(two, question) == 202
        for events in await asyncio.gather(*followings):
            assert events[-1]["code"] == ("EXECUTION_CANCELLED" if is_stopped else "SUCCESS")


@pytest.mark.parametrize("suspend_after_s", [0.01, 600.0])
async def test_an_ag_ui_client_resumes_at_either_server(tmp_path: Path, suspend_after_s: float) -> None:
    store = str(tmp_path / "runs.db")
    async with (
        server(store, suspend_after_s=suspend_after_s) as one,
        server(store, suspend_after_s=suspend_after_s) as two,
    ):
        first = await told(one, "clerk", asked("r1", "send"))
        [interrupt] = first[-1]["outcome"]["interrupts"]
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}]
        body = {**asked("r2"), "resume": resume}
        second = await told(two, "clerk", body)
        assert "".join(each["delta"] for each in second if each["type"] == "TEXT_MESSAGE_CONTENT") == "It is sent."
        assert (second[-1]["type"], second[-1]["result"]) == ("RUN_FINISHED", "It is sent.")
        assert await told(two, "clerk", body) == second, "it is asked for once more"


@pytest.mark.parametrize("suspend_after_s", [0.01, 600.0])
async def test_results_of_a_clients_tools_are_taken_at_either_server(tmp_path: Path, suspend_after_s: float) -> None:
    store = str(tmp_path / "runs.db")
    async with (
        server(store, painter(), suspend_after_s=suspend_after_s) as one,
        server(store, painter(), suspend_after_s=suspend_after_s) as two,
    ):
        first = await told(one, "painter", asked("r1", "Paint.", tools=TOOLS))
        calls = [each["toolCallId"] for each in first if each["type"] == "TOOL_CALL_START"]
        body = {**asked("r2", tools=TOOLS), "messages": results(calls, "It is red.", "It is blue.")}
        second = await told(two, "painter", body)
        assert second[-1]["result"] == "It is red. and It is blue."
        third = await told(one, "painter", asked("r3", "Paint again.", tools=TOOLS))
        assert shown(third).count("TOOL_CALL_START") == 2


async def test_a_run_of_a_client_does_not_end_with_what_that_has_answered_already() -> None:
    turn = Live("t", painter(), base=1, is_tied=False, limits=ServeLimits())
    question = external_question("call_1")
    turn.early[question] = "It is red."
    # Another server drives the turn: it is not heard which call the question is of.
    turn.note_asked(QuestionAsked(path=("painter",), id="q", question=question, options=()))
    told_here = Agui(turn, Segment(run_id="r2", after=0), thread_id="t")
    told_here.say(turn.entries)
    assert not told_here.may_pause


async def test_a_server_that_follows_a_turn_takes_the_next_prompt_as_soon_as_another_has_ended_it(
    tmp_path: Path,
) -> None:
    store, turns = str(tmp_path / "runs.db"), "/agents/clerk/chats/c/turns"
    async with server(store) as one, server(store) as two:
        question = await begun(one)
        following = asyncio.create_task(two.told("GET", "/chats/c/events"))
        assert (await two.waiting("/chats/c"))["id"] == question["id"]
        assert await answer(one, question) == 202
        assert (await one.told("GET", "/chats/c/events"))[-1]["output"] == "It is sent."
        assert (await two.ask("POST", turns, {"input": "send"}, **DETACHED))[0] == 202
        assert (await following)[-1]["output"] == "It is sent."


@pytest.mark.parametrize("what", ["the next prompt", "a deletion"])
async def test_a_chat_is_free_once_the_end_of_its_turn_is_stored(what: str) -> None:
    # Another server of the store may have told it to the client by then.
    engine, turns = Process(InMemoryEngine(Memory()), die=print), "/agents/clerk/chats/c/turns"
    is_stored, is_seen = asyncio.Event(), asyncio.Event()

    async def tell_late(verb: str) -> None:
        if verb == "settle":
            is_stored.set()
            await is_seen.wait()

    async def see(verb: str) -> None:
        if verb == "get" and is_stored.is_set():
            is_seen.set()

    engine.after, engine.before = tell_late, see
    async with Durable(engine) as durable, serving([clerk()], store=durable) as served:
        await served.ask("POST", turns, {"input": "hello"}, **DETACHED)
        await is_stored.wait()
        if what == "a deletion":
            status, _ = await served.ask("DELETE", "/chats/c")
        else:
            status, _ = await served.ask("POST", turns, {"input": "hello again"}, **DETACHED)
        is_seen.set()
        assert status in (202, 204)


class Slow(InMemoryEngine):
    """A store that is slow to note what a run asks."""

    def __init__(self) -> None:
        super().__init__(Memory())
        self.is_asked, self.may_note = asyncio.Event(), asyncio.Event()

    async def note(self, claim: Claim, asked: bytes | None) -> None:
        self.is_asked.set()
        await self.may_note.wait()
        await super().note(claim, asked)


async def test_a_question_is_not_withdrawn_before_it_is_noted() -> None:
    engine = Slow()
    async with Durable(engine) as durable:
        await durable.start(clerk(), "send", id="public:r")
        async with serving([clerk()], store=durable) as served:
            following = asyncio.create_task(served.told("GET", "/runs/r/events"))
            await engine.is_asked.wait()
            for _ in range(3):  # whoever follows the run looks at it
                durable.hub.notify()
                await served.ask("GET", "/health")
            engine.may_note.set()
            question = await served.waiting("/runs/r")
            assert (await served.ask("POST", f"/runs/r/answers/{question['id']}", ALLOW))[0] == 202
            events = await following
    answers = [each for each in events if each["event"] == "ApprovalAnswered"]
    assert [each["decision"] for each in answers] == ["allow"]


async def test_why_a_run_is_blocked_is_for_the_operator_and_not_for_its_clients(tmp_path: Path) -> None:
    async with Durable(str(tmp_path / "runs.db")) as durable:
        handle, engine = await durable.start(clerk(), "Hello.", id="public:r"), durable.hub.engine
        claim = await claimed(engine, handle.id, now=durable.hub.now())
        await engine.settle(claim, Change(status="blocked", why="the disk /srv/runs is full"), now=durable.hub.now())
        async with serving([clerk()], store=durable) as served:
            status, shown = await served.ask("GET", "/runs/r")
            assert (status, shown["status"], shown["reason"]) == (200, "blocked", None)
            [end] = await served.told("GET", "/runs/r/events")
            assert end["error"]["code"] == "BLOCKED"
            assert end["error"]["message"] == "The run 'r' cannot go on by itself."
            assert (await handle.info()).reason == "the disk /srv/runs is full"
