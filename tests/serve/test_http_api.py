"""The JSON API: runs, chats, owners, limits, and clients that leave."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from journeyman import Agent, DefinitionError, Runtime
from journeyman.journal import InMemoryJournal
from journeyman.serve import ServeLimits, create_app
from journeyman.testing.scripted import FunctionModel, ScriptedModel
from tests.play import Door
from tests.serve.http_served import AppOptions, Served, clerk, owner, planner, serving, waiter

RUN, SAID = {"input": "Hello."}, "You said: Hello."
DETACHED = {"prefer": "respond-async"}
JSON = {"Content-Type": "application/json"}


async def test_a_run_is_answered_with_the_document_of_its_result() -> None:
    async with serving([clerk(), planner()]) as served:
        status, document = await served.ask("POST", "/agents/clerk/runs", RUN)
        assert (status, document["code"], document["output"]) == (200, "SUCCESS", SAID)
        status, document = await served.ask("POST", "/agents/planner/runs", {"input": {"city": "Oslo", "days": 2}})
        assert (status, document["output"]) == (200, {"title": "A trip", "steps": ["go", "return"]})
        assert (await served.ask("GET", "/agents"))[1]["agents"][0] == {"name": "clerk", "description": "Sends."}


async def test_the_same_key_is_the_same_run_and_with_another_body_it_is_refused() -> None:
    async with serving([clerk()]) as served:
        _, first = await served.ask("POST", "/agents/clerk/runs", RUN, idempotency_key='"a-1"')
        _, again = await served.ask("POST", "/agents/clerk/runs", RUN, idempotency_key="a-1")
        assert first == again
        status, refused = await served.ask("POST", "/agents/clerk/runs", {"input": "Other."}, idempotency_key="a-1")
        assert (status, refused["error"]["code"]) == (409, "KEY_REUSED")
        assert refused["error"]["message"] == (
            "This Idempotency-Key was used before, and its input is 'Hello.', not 'Other.'."
        )


@pytest.mark.parametrize(
    "given", ["a", '"a"', " a\t", '"a', 'a"', '""a""', "\xa0a", "a\x85", "a b", "", '""', "é", "a" * 101]
)
async def test_what_the_document_says_of_a_key_is_what_is_taken(given: str) -> None:
    async with serving([clerk()]) as served:
        operation = (await served.ask("GET", "/openapi.json"))[1]["paths"]["/agents/clerk/runs"]["post"]
        (schema,) = [each["schema"] for each in operation["parameters"] if each["name"] == "Idempotency-Key"]
        head = b"POST /agents/clerk/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 19\r\nConnection: close\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]))
        writer.write(head + b"Idempotency-Key: " + given.encode("latin-1") + b'\r\n\r\n{"input": "Hello."}')
        status = int((await reader.readline()).split()[1])
        await reader.read()
        writer.close()
        assert status == (400 if re.search(schema["pattern"], given) is None else 200)


async def test_events_are_numbered_and_may_be_gone_on_with_after_any_of_them() -> None:
    async with serving([clerk()]) as served:
        told = await served.told("POST", "/agents/clerk/runs", RUN, idempotency_key="r")
        names = [each["event"] for each in told]
        assert (names[0], names[-2:]) == ("RunStarted", ["RunSucceeded", "Result"])
        assert [each["id"] for each in told] == [str(number) for number in range(1, len(told) + 1)]
        for after in range(len(told)):
            assert await served.told("GET", f"/runs/r/events?after={after}") == told[after:]
            assert await served.told("GET", "/runs/r/events", last_event_id=str(after)) == told[after:]


@pytest.mark.parametrize("place", ["/runs/r", "/chats/c"])
async def test_who_has_the_last_event_is_told_that_nothing_follows(tmp_path: Path, place: str) -> None:
    begin = "/agents/clerk/runs" if "/runs/" in place else "/agents/clerk/chats/c/turns"
    store = str(tmp_path / "runs.db")
    async with serving([clerk()], store=store) as served:
        told = await served.told("POST", begin, RUN, idempotency_key="r")
        for events in (f"{place}/events", f"{place}/events?after=1"):
            assert await served.ask("GET", events, last_event_id=told[-1]["id"]) == (204, "")
        assert await served.told("GET", f"{place}/events", last_event_id=told[-2]["id"]) == told[-1:]
        assert await served.told("GET", f"{place}/events") == told
    async with serving([clerk()], store=store) as served:  # its numbers are higher: one more time, and then no more
        again = await served.told("GET", f"{place}/events", last_event_id=told[-1]["id"])
        assert [each["event"] for each in again[-2:]] == ["TextDelta", "Result"]
    for _ in range(2):
        async with serving([clerk()], store=store) as served:
            assert await served.ask("GET", f"{place}/events", last_event_id=again[-1]["id"]) == (204, "")
            assert (await served.told("GET", f"{place}/events"))[-1] == again[-1]


async def test_what_is_kept_no_more_is_told_as_a_gap() -> None:
    async with serving([clerk()], limits=ServeLimits(kept_events=3)) as served:
        await served.ask("POST", "/agents/clerk/runs", RUN, idempotency_key="r")
        gap, *rest = await served.told("GET", "/runs/r/events?after=1")
        assert (gap["event"], gap["from"], gap["to"] + 1) == ("Gap", 2, int(rest[0]["id"]))


BAD: Mapping[str, tuple[str, str, Any, int, str, str]] = {
    "no such agent": ("POST", "/agents/nobody/runs", RUN, 404, "UNKNOWN_AGENT", ""),
    "no input": ("POST", "/agents/clerk/runs", {}, 422, "INVALID_INPUT", "input"),
    "no text": ("POST", "/agents/clerk/runs", {"input": 7}, 422, "INVALID_INPUT", "input"),
    "blank": ("POST", "/agents/clerk/runs", {"input": " "}, 422, "INVALID_INPUT", "input"),
    "unknown property": ("POST", "/agents/clerk/runs", {"input": "a", "model": "b"}, 422, "INVALID_INPUT", "model"),
    "no object": ("POST", "/agents/clerk/runs", ["a"], 422, "INVALID_INPUT", ""),
    "wrong type": (
        "POST",
        "/agents/planner/runs",
        {"input": {"city": 1, "days": 2}},
        422,
        "INVALID_INPUT",
        "input.city",
    ),
    "missing": ("POST", "/agents/planner/runs", {"input": {"city": "Oslo"}}, 422, "INVALID_INPUT", "input.days"),
    "no such run": ("GET", "/runs/nothing", None, 404, "NOT_FOUND", ""),
    "no id": ("GET", "/runs/a%20b", None, 404, "NOT_FOUND", ""),
    "no such chat": ("GET", "/chats/nothing", None, 404, "NOT_FOUND", ""),
    "no number": ("GET", "/runs/nothing/events?after=-1", None, 400, "BAD_NUMBER", ""),
    "no route": ("GET", "/nothing", None, 404, "NOT_FOUND", ""),
    "wrong method": ("PUT", "/agents", None, 405, "WRONG_METHOD", ""),
    "no decision": ("POST", "/runs/r/answers/abcdef", {"decision": "perhaps"}, 422, "INVALID_INPUT", "decision"),
    "large number": ("POST", "/runs/r/answers/abcdef", {"decision": 2**80}, 422, "INVALID_INPUT", "decision"),
    "blank steering": ("POST", "/runs/r/steer", {"text": ""}, 422, "INVALID_INPUT", "text"),
    "over": ("POST", "/runs/r/steer", {"text": "More."}, 409, "OVER", ""),
    "nothing waits": ("POST", "/runs/r/answers/abcdef", {"text": "Yes."}, 409, "NOT_WAITING", ""),
}


async def test_each_bad_request_gets_one_clear_line() -> None:
    async with serving([clerk(), planner()]) as served:
        await served.ask("POST", "/agents/clerk/runs", RUN, idempotency_key="r")
        for name, (method, path, body, expected, code, place) in BAD.items():
            status, document = await served.ask(method, path, body)
            error = document["error"]
            assert (name, status, error["code"]) == (name, expected, code)
            assert [each["path"] for each in error.get("issues", [])] == ([place] if expected == 422 else [])
            assert error["message"]
            assert "\n" not in error["message"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "NOT_JSON"),
        (b"[" * 900, 400, "NOT_JSON"),
        (b'"\xff"', 400, "NOT_JSON"),
        (b"x" * 1_001, 413, "TOO_LARGE"),
    ],
    ids=["cut off", "deep", "no UTF-8", "long"],
)
async def test_what_is_no_json_or_too_long_is_refused_on_every_route(body: bytes, status: int, code: str) -> None:
    async with serving([clerk()], limits=ServeLimits(body_bytes=1_000)) as served:
        for method, path in served.app.routes:
            if method == "POST":
                place = served.url + path.format(agent="clerk", id="one", question="abcdef")
                async with served.client.post(place, data=body, headers=JSON) as response:
                    assert (response.status, (await response.json())["error"]["code"]) == (status, code), path


async def documented(served: Served) -> list[tuple[str, str]]:
    """Return the method and path of all that the OpenAPI document tells of."""
    _, document = await served.ask("GET", "/openapi.json")
    return [(method.upper(), path) for path, operations in document["paths"].items() for method in operations]


OF_ONE: Mapping[tuple[str, str], Any] = {
    ("GET", "/runs/{id}"): None,
    ("DELETE", "/runs/{id}"): None,
    ("GET", "/runs/{id}/events"): None,
    ("POST", "/runs/{id}/stop"): {},
    ("POST", "/runs/{id}/steer"): {"text": "More."},
    ("POST", "/runs/{id}/answers/{question}"): {"decision": "allow"},
    ("GET", "/chats/{id}"): None,
    ("DELETE", "/chats/{id}"): None,
    ("GET", "/chats/{id}/events"): None,
    ("POST", "/chats/{id}/stop"): {},
    ("POST", "/chats/{id}/steer"): {"text": "More."},
    ("POST", "/chats/{id}/answers/{question}"): {"decision": "allow"},
}
"""Routes to what an owner has, and what is sent there."""
OF_NOBODY = [("GET", path) for path in ("/health", "/ready", "/openapi.json", "/agents")]
LISTS = [("GET", "/runs"), ("GET", "/chats")]
BEGINNING = [("POST", f"/agents/{{agent}}/{what}") for what in ("runs", "agui", "chats/{id}/turns")]
"""Routes that make something of the owner's own, by a name that another may have used."""
THREAD = {"threadId": "one", "runId": "first", "messages": [{"id": "1", "role": "user", "content": "Mine."}]}


@pytest.mark.parametrize("is_stored", [False, True])
async def test_what_is_anothers_is_not_there_on_any_route(tmp_path: Path, is_stored: bool) -> None:
    stored, plain = AppOptions(store=str(tmp_path / "runs.db"), authorize=owner), AppOptions(authorize=owner)
    async with serving([clerk()], **(stored if is_stored else plain)) as served:
        assert sorted(served.app.routes) == sorted([*OF_ONE, *OF_NOBODY, *LISTS, *BEGINNING])
        known = [(method, path.replace("{agent}", "clerk")) for method, path in served.app.routes]
        assert sorted([*await documented(served), ("GET", "/openapi.json")]) == sorted(known)
        ask = {"input": "Please send it."}
        await served.ask("POST", "/agents/clerk/runs", ask, x_user="ada", idempotency_key="one", **DETACHED)
        thread = {**THREAD, "messages": [{"id": "1", "role": "user", "content": "Please send it."}]}
        asked = (await served.told("POST", "/agents/clerk/agui", thread, x_user="ada"))[-1]
        waits = {place: await served.waiting(f"/{place}/one", x_user="ada") for place in ("runs", "chats")}
        for (method, path), body in OF_ONE.items():
            question = waits[path.split("/")[1]]["id"]
            place = path.format(id="one", question=question)
            theirs = await served.ask(method, place, body, x_user="eve")
            never = await served.ask(method, path.format(id="two", question=question), body, x_user="eve")
            assert theirs[0] == 404, place
            assert re.sub("one", "two", str(theirs)) == str(never)
            assert (await served.ask(method, place, body))[0] == 401, place
        resume = [{"interruptId": asked["outcome"]["interrupts"][0]["id"], "status": "cancelled"}]
        for run in ("first", "second"):  # that of the one who was asked, and another
            body = {**thread, "runId": run, "messages": [], "resume": resume}
            assert (await served.told("POST", "/agents/clerk/agui", body, x_user="eve"))[-1]["code"] == "NOT_FOUND"
        mine = await served.told("POST", "/agents/clerk/agui", THREAD, x_user="eve", last_event_id="0.0")
        assert mine[-1]["result"] == "You said: Mine."
        for path in ("/agents/clerk/runs", "/agents/clerk/chats/two/turns"):
            status, run = await served.ask("POST", path, {"input": "Mine."}, x_user="eve", idempotency_key="one")
            assert (status, run["output"]) == (200, "You said: Mine.")
        for method, path in LISTS:
            of_eve = (await served.ask(method, path, x_user="eve"))[1][path.removeprefix("/")]
            of_ada = (await served.ask(method, path, x_user="ada"))[1][path.removeprefix("/")]
            assert not {str(each) for each in of_eve} & {str(each) for each in of_ada}, path
            assert (await served.ask(method, path, x_user="bob"))[1] == {path.removeprefix("/"): [], "next": None}
        for method, path in [*BEGINNING, *LISTS, ("GET", "/agents")]:
            place = path.format(agent="clerk", id="one")
            assert (await served.ask(method, place, THREAD if "agui" in place else RUN))[0] == 401, place
        for place in ("runs", "chats"):
            answer = f"/{place}/one/answers/{waits[place]['id']}"
            assert (await served.ask("POST", answer, {"decision": "allow"}, x_user="ada"))[0] == 202
            told = await served.told("GET", f"/{place}/one/events", x_user="ada")
            assert told[-1]["output"] == "It is sent."


async def test_an_owner_is_part_of_no_name_that_another_could_have() -> None:
    async with serving([clerk()], authorize=owner) as served:
        for user in ("a", "a:b", "a/b", "../a", "a%3Ab"):
            await served.ask("POST", "/agents/clerk/chats/x/turns", {"input": user}, x_user=user)
        for user in ("a", "a:b", "a/b", "../a", "a%3Ab"):
            _, chat = await served.ask("GET", "/chats/x", x_user=user)
            assert chat["messages"][0]["content"][0]["text"] == user
        assert (await served.ask("GET", "/chats/x", x_user="a" * 200))[0] == 500


async def test_authorize_may_be_async_and_deps_are_those_of_the_owner() -> None:
    async def who(request: Request) -> str | None:
        return request.headers.get("x-user")

    model = FunctionModel(lambda request: request.messages[-1].text)
    agent = Agent(name="greeter", model=model, deps=str, prompt=lambda text, deps: deps)
    async with serving([agent], authorize=who, deps=lambda owner: f"deps of {owner}") as served:
        assert (await served.ask("POST", "/agents/greeter/runs", RUN, x_user="Ada L."))[1]["output"] == "deps of Ada L."
        assert (await served.ask("POST", "/agents/greeter/chats/c/turns", RUN, x_user="Bob"))[1][
            "output"
        ] == "deps of Bob"
        assert (await served.ask("POST", "/agents/greeter/runs", RUN))[0] == 401


async def test_one_run_too_many_is_told_to_come_back() -> None:
    door = Door()
    async with serving([waiter(door)], limits=ServeLimits(runs=1)) as served:
        await served.ask("POST", "/agents/waiter/runs", RUN, idempotency_key="r", **DETACHED)
        await door.reached.wait()
        async with served.client.post(f"{served.url}/agents/waiter/runs", json=RUN) as response:
            assert (response.status, response.headers["retry-after"]) == (429, "1")
            assert "1 runs are under way" in (await response.json())["error"]["message"]
        door.opened.set()
        assert (await served.told("GET", "/runs/r/events"))[-1]["output"] == "It is open."
        assert (await served.ask("POST", "/agents/waiter/runs", RUN))[0] == 200


async def test_one_follower_too_many_is_told_to_come_back() -> None:
    door = Door()
    async with serving([waiter(door)], limits=ServeLimits(followers=1)) as served:
        async with served.client.post(
            f"{served.url}/agents/waiter/runs", json=RUN, headers={"Accept": "text/event-stream"}
        ):
            await door.reached.wait()
            assert (await served.ask("POST", "/agents/waiter/runs", RUN))[0] == 503
        door.opened.set()


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_a_plain_run_ends_when_its_client_leaves(accept: str) -> None:
    door = Door()
    async with serving([waiter(door)]) as served:
        headers = {"Accept": accept, "Idempotency-Key": "r"}
        asking = asyncio.create_task(
            served.client.post(f"{served.url}/agents/waiter/runs", json=RUN, headers=headers).__aenter__()
        )
        await door.reached.wait()
        if accept == "application/json":
            asking.cancel()
        else:
            (await asking).close()
        document = await served.ended("r")
        assert (document["code"], document["error"]["context"]["reason"]) == ("EXECUTION_CANCELLED", "the client left")


@pytest.mark.parametrize("how", ["stored", "continue"])
async def test_a_stored_run_goes_on_when_its_client_leaves(tmp_path: Path, how: str) -> None:
    door = Door()
    stored = AppOptions(store=str(tmp_path / "runs.db"))
    options = stored if how == "stored" else AppOptions(on_disconnect="continue")
    async with serving([waiter(door)], **options) as served:
        headers = {"Accept": "text/event-stream", "Idempotency-Key": "r"}
        async with served.client.post(f"{served.url}/agents/waiter/runs", json=RUN, headers=headers) as response:
            await door.reached.wait()
            response.close()
        door.opened.set()
        assert (await served.told("GET", "/runs/r/events"))[-1]["output"] == "It is open."


async def test_a_run_that_takes_too_long_is_stopped_and_no_other() -> None:
    patient, endless = Door(), Door()
    async with (
        serving([waiter(patient)], limits=ServeLimits(run_s=60)) as longer,
        serving([waiter(endless)]) as unlimited,
        serving([waiter(Door())], limits=ServeLimits(run_s=0.01)) as served,
    ):
        for each in (longer, unlimited):
            await each.ask("POST", "/agents/waiter/runs", RUN, idempotency_key="r", **DETACHED)
        _, document = await served.ask("POST", "/agents/waiter/runs", RUN)
        assert document["error"]["context"]["reason"] == "it took longer than 0.01 s"
        patient.opened.set()
        endless.opened.set()
        for each in (longer, unlimited):  # a server has looked at them as often by then
            assert (await each.told("GET", "/runs/r/events"))[-1]["output"] == "It is open."


async def test_what_is_said_to_a_run_is_heard() -> None:
    door = Door()
    async with serving([waiter(door)]) as served:
        await served.ask("POST", "/agents/waiter/runs", RUN, idempotency_key="r", **DETACHED)
        await door.reached.wait()
        assert (await served.ask("POST", "/runs/r/steer", {"text": "In French."}))[0] == 202
        door.opened.set()
        history = (await served.told("GET", "/runs/r/events"))[-1]["history"]
        assert "In French." in str(history)


@pytest.mark.parametrize("is_stored", [False, True])
async def test_the_first_answer_counts(tmp_path: Path, is_stored: bool) -> None:
    options = AppOptions(store=str(tmp_path / "runs.db")) if is_stored else AppOptions()
    async with serving([clerk()], **options) as served:
        await served.ask("POST", "/agents/clerk/runs", {"input": "send"}, idempotency_key="r", **DETACHED)
        question = await served.waiting("/runs/r")
        assert (question["tool"], question["arguments"]) == ("send", {"letter": "Dear Ada"})
        place = f"/runs/r/answers/{question['id']}"
        assert (await served.ask("POST", place, {"decision": "deny", "reason": "not yet"}))[0] == 202
        status, late = await served.ask("POST", place, {"decision": "allow"})
        assert (status, late["error"]["message"]) == (409, "This was answered before: deny, by you.")
        told = await served.told("GET", "/runs/r/events")
        (answered,) = [each for each in told if each["event"] == "ApprovalAnswered"]
        assert (answered["decision"], answered["reason"]) == ("deny", "not yet")


async def test_a_stored_run_that_waits_outlives_its_server(tmp_path: Path) -> None:
    store = str(tmp_path / "runs.db")
    async with serving([clerk()], store=store) as served:
        await served.ask("POST", "/agents/clerk/runs", {"input": "send"}, idempotency_key="r", **DETACHED)
        question = await served.waiting("/runs/r")
    async with serving([clerk()], store=store) as served:
        following = asyncio.create_task(served.told("GET", "/runs/r/events"))
        status, _ = await served.ask("POST", f"/runs/r/answers/{question['id']}", {"decision": "allow"})
        assert status == 202
        assert (await following)[-1]["output"] == "It is sent."
        status, shown = await served.ask("GET", "/runs/r")
        assert (shown["status"], shown["result"]["output"]) == ("done", "It is sent.")
    async with serving([clerk()], store=store) as served:
        _, again = await served.ask("POST", "/agents/clerk/runs", {"input": "send"}, idempotency_key="r")
        assert again["output"] == "It is sent."


async def test_a_run_in_memory_that_nobody_answers_is_stopped() -> None:
    async with serving([clerk()], limits=ServeLimits(patience_s=0.01)) as served:
        await served.ask("POST", "/agents/clerk/runs", {"input": "send"}, idempotency_key="r", **DETACHED)
        document = await served.ended("r")
        assert document["error"]["context"]["reason"] == "nobody answered within 0.01 s"


@pytest.mark.parametrize("is_stored", [False, True])
async def test_the_second_turn_of_a_chat_knows_the_first(tmp_path: Path, is_stored: bool) -> None:
    options = AppOptions(store=str(tmp_path / "runs.db")) if is_stored else AppOptions()
    async with serving([clerk(), planner()], **options) as served:
        assert (await served.ask("POST", "/agents/clerk/chats/c/turns", RUN))[1]["output"] == SAID
        told = await served.told("POST", "/agents/clerk/chats/c/turns", {"input": "Again."}, idempotency_key="k")
        assert told[-1]["output"] == f"{SAID} Again."
        assert await served.told("GET", f"/chats/c/events?after={told[2]['id']}") == told[3:]
        again = await served.told("POST", "/agents/clerk/chats/c/turns", {"input": "Again."}, idempotency_key="k")
        assert again == told
        status, refused = await served.ask("POST", "/agents/clerk/chats/c/turns", RUN, idempotency_key="k")
        assert (status, refused["error"]["code"]) == (409, "KEY_REUSED")
        trip = {"input": {"city": "Oslo", "days": 1}}
        status, refused = await served.ask("POST", "/agents/planner/chats/c/turns", trip)
        assert status == 409
        assert refused["error"]["code"] == "CHAT_UNUSABLE"
        assert "public" not in str(refused)  # what the store says is for its operator
        _, chat = await served.ask("GET", "/chats/c")
        assert (len(chat["messages"]), chat["is_running"]) == (4, False)


async def test_a_chat_has_one_turn_at_a_time() -> None:
    door = Door()
    async with serving([waiter(door)]) as served:
        await served.ask("POST", "/agents/waiter/chats/c/turns", RUN, **DETACHED)
        await door.reached.wait()
        status, refused = await served.ask("POST", "/agents/waiter/chats/c/turns", RUN)
        assert (status, refused["error"]["code"]) == (409, "CHAT_IN_USE")
        assert "'c' a turn goes on, in this server" in refused["error"]["message"]
        assert (await served.ask("POST", "/chats/c/stop", {}))[0] == 202
        assert (await served.told("GET", "/chats/c/events"))[-1]["code"] == "EXECUTION_CANCELLED"


async def test_a_chat_that_another_server_uses_says_who_has_it(tmp_path: Path) -> None:
    door, store = Door(), str(tmp_path / "runs.db")
    async with serving([waiter(door)], store=store) as first, serving([waiter(door)], store=store) as second:
        await first.ask("POST", "/agents/waiter/chats/c/turns", RUN, **DETACHED)
        await door.reached.wait()
        status, refused = await second.ask("POST", "/agents/waiter/chats/c/turns", RUN)
        assert (status, refused["error"]["code"]) == (409, "CHAT_IN_USE")
        assert refused["error"]["message"] == "The chat 'c' is open in this server, and only one may write to it."
        door.opened.set()
        assert (await first.told("GET", "/chats/c/events"))[-1]["output"] == "It is open."


@pytest.mark.parametrize("how", ["run", "turn"])
async def test_runs_and_chats_are_kept_in_postgres(emptied: str, how: str) -> None:
    begin, shown = ("runs", "/runs/r") if how == "run" else ("chats/r/turns", "/chats/r")
    async with serving([clerk()], store=emptied) as served:
        await served.ask("POST", f"/agents/clerk/{begin}", {"input": "send"}, idempotency_key="r", **DETACHED)
        question = await served.waiting(shown)
    async with serving([clerk()], store=emptied) as served:
        following = asyncio.create_task(served.told("GET", f"{shown}/events"))
        assert (await served.waiting(shown))["id"] == question["id"]
        answer = f"{shown}/answers/{question['id']}"
        assert (await served.ask("POST", answer, {"decision": "allow"}))[0] == 202
        assert (await following)[-1]["output"] == "It is sent."


async def test_a_turn_that_was_cut_off_goes_on_in_the_next_server(tmp_path: Path) -> None:
    store = str(tmp_path / "runs.db")
    async with serving([clerk()], store=store) as served:
        await served.ask("POST", "/agents/clerk/chats/c/turns", {"input": "send"}, **DETACHED)
        question = await served.waiting("/chats/c")
    async with serving([clerk()], store=store) as served:
        status, _ = await served.ask("POST", "/agents/clerk/chats/c/turns", RUN)
        assert status == 409
        assert (await served.ask("POST", f"/chats/c/answers/{question['id']}", {"decision": "allow"}))[0] == 202
        assert (await served.told("GET", "/chats/c/events"))[-1]["output"] == "It is sent."


async def test_a_server_that_closes_begins_nothing_and_lets_what_goes_on_end() -> None:
    door = Door()
    async with serving([waiter(door)]) as served:
        asking = asyncio.create_task(served.ask("POST", "/agents/waiter/runs", RUN))
        await door.reached.wait()
        closing = asyncio.create_task(served.app.drain(60.0))
        await asyncio.sleep(0)
        assert (await served.ask("GET", "/ready"))[0] == 503
        assert (await served.ask("POST", "/agents/waiter/runs", RUN))[0] == 503
        assert (await served.ask("GET", "/health"))[0] == 200
        door.opened.set()
        assert (await asking)[1]["output"] == "It is open."
        await closing


async def test_what_does_not_end_in_time_is_stopped_with_its_result() -> None:
    door = Door()
    async with serving([waiter(door)]) as served:
        asking = [asyncio.create_task(served.ask("POST", "/agents/waiter/runs", RUN)) for _ in range(20)]
        await door.reached.wait()
        await served.app.drain(0.0)
        codes = {(await each)[1].get("code", "never began") for each in asking}
        assert "EXECUTION_CANCELLED" in codes
        assert codes <= {"EXECUTION_CANCELLED", "never began"}


def test_an_app_that_cannot_be_served_says_every_reason() -> None:
    agents = [clerk(), clerk(), Agent(name="asker", model=ScriptedModel("Hi."), deps=int)]
    with pytest.raises(DefinitionError) as raised:
        create_app(agents, runtime=Runtime(journal=InMemoryJournal()))
    codes = [problem.code for problem in raised.value.problems]
    assert codes == ["DUPLICATE_AGENT_NAME", "MISSING_DEPS", "SHARED_JOURNAL"]
    with pytest.raises(DefinitionError, match="no agent to serve"):
        create_app([])
