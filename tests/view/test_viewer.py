"""The viewer's server: what it shows of a store, live and afterwards, who may ask it, and what it says to runs."""

import asyncio
import json
import re
import socket
import threading
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from journeyman import Agent, Chat, Limits, Runtime, Success, Text, ask_user, run
from journeyman.durable import Durable
from journeyman.errors import DefinitionError, RunUnknown, StoreError
from journeyman.model import Request
from journeyman.record import Recorder, Recordings
from journeyman.serve.http_guard import HttpGuard
from journeyman.testing.scripted import ScriptedModel, call, say
from journeyman.view import create_viewer, serve_view
from journeyman.view.live import MOST_WATCHERS, Reader
from journeyman.view.queries import StoreReader
from journeyman.view.steering import Given, Steering
from tests.play import failed, instance_of, make_tool
from tests.support import tamper
from tests.support.postgres import PostgresServer
from tests.view.desk import TOKEN, asking, look, viewing

LOOK = say(call("look", {"topic": "tides"}, id="c1"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


async def recorded(path: Path | str, *inputs: str) -> list[str]:
    for text in inputs:
        agent = Agent(name="scout", model=ScriptedModel([LOOK, say("They rise.")]), tools=[look])
        (await run(agent, f"{text}\udc80", runtime=Runtime(recorder=path))).unwrap()
    with Recordings(path) as recordings:
        return [each.id for each in recordings.runs()]


async def test_a_run_is_shown_with_its_events_requests_and_figures(place: str) -> None:
    [id] = await recorded(place, "What of the tides?")
    async with viewing(place) as desk:
        store = await desk.get("/api/store")
        assert (store["runs"], store["read_only"], store["notice"]) == (1, False, None)
        assert store["place"] == place or store["place"].startswith("The database")
        assert store["bytes"] > 50_000
        [shown] = (await desk.get("/api/runs"))["runs"]
        assert shown == await desk.get(f"/api/runs/{id}")
        assert (shown["agent"], shown["status"], shown["calls"]) == ("scout", "done", 1)
        page = await desk.get(f"/api/runs/{id}/events?most=5")
        assert [each["type"] for each in page["events"]][:3] == ["RunStarted", "Input", "AttemptStarted"]
        finished = next(each for each in page["events"] if each["type"] == "ToolFinished")
        assert finished["tool_result"] == {"cut": "about", "characters": 11}
        whole = await desk.get(f"/api/runs/{id}/events/{finished['n']}")
        assert whole["tool_result"] == "about tides"
        first = await desk.get(f"/api/runs/{id}/events?limit=2")
        assert (len(first["events"]), first["more"]) == (2, True)
        rest = await desk.get(f"/api/runs/{id}/events?after=0&skip=2&most=5")
        assert (rest["events"], rest["more"]) == (page["events"][2:], False)
        assert await desk.get(f"/api/runs/{id}/events?skip=999") == {"events": [], "more": False}
        requests = (await desk.get(f"/api/runs/{id}/requests"))["requests"]
        request = await desk.get(f"/api/runs/{id}/requests/{requests[1]['n']}")
        body = await desk.get(f"/api/runs/{id}/requests/{requests[1]['n']}/body")
        assert json.loads("".join(piece["body"] for piece in request["pieces"])) == body
        assert (await desk.get("/api/days?days=2"))["days"][-1]["runs"] == 1
        assert (await desk.get(f"/api/runs/{id}/signals"))["signals"] == []


async def test_the_input_is_shown_with_what_the_run_may_use_of_what_is_limited(place: str) -> None:
    limits = Limits(tokens=9_000, seconds=60.5)
    agent = Agent(name="scout", model=ScriptedModel([say("They rise.")]), limits=limits)
    with Recorder(place, content=False) as recorder:
        (await run(agent, "What?", runtime=Runtime(recorder=recorder))).unwrap()
    async with viewing(place) as desk:
        [shown] = (await desk.get("/api/runs"))["runs"]
        events = (await desk.get(f"/api/runs/{shown['id']}/events"))["events"]
    [told] = [each["limits"] for each in events if each["type"] == "Input"]
    assert told == {"tokens": 9_000, "seconds": 60.5}


async def test_runs_come_in_pages_and_are_found_by_what_was_said(place: str) -> None:
    ids = await recorded(place, "one", "two", 'the 50% "quoted" ebb')
    async with viewing(place) as desk:
        first = await desk.get("/api/runs?limit=2")
        assert ([each["id"] for each in first["runs"]], first["more"]) == (ids[:2], True)
        rest = await desk.get(f"/api/runs?limit=2&before={first['next']}")
        assert ([each["id"] for each in rest["runs"]], rest["more"]) == (ids[2:], False)
        for query, expected in (
            ("q=50%25+%22quoted", ids[:1]),
            ("q=ABOUT+tides", ids),
            ("q=never+said", []),
            ("tool=look", ids),
            ("tool=other", []),
            ("status=done&agent=scout", ids),
            ("failed=1", []),
            ("status=running", []),
            ("over_cost=1", []),
        ):
            assert [each["id"] for each in (await desk.get(f"/api/runs?{query}"))["runs"]] == expected, query


async def test_who_has_a_list_hears_what_has_changed_since_it_was_read(place: str) -> None:
    with Recorder(place, asks=True) as recorder:
        going = asyncio.create_task(run(asking(LOOK, say("No.")), "What?", runtime=Runtime(recorder=recorder)))
        async with viewing(place) as desk:
            waits = await desk.newest()
            listed = await desk.get("/api/runs")
            assert [(each["id"], each["status"]) for each in listed["runs"]] == [(waits, "running")]
            going.cancel()
            await asyncio.wait((going,))
            await recorder.flush()
            new, _ = await recorded(place, "one")
            stream = desk.live(f"?newest={listed['newest']}&shown={waits},nobody")
            told = {each["id"]: each["status"] for each in (await anext(stream))[1]}
    assert told == {waits: "cancelled", new: "done"}


async def test_durable_runs_that_are_not_recorded_appear_with_what_they_wait_for(place: str) -> None:
    async with Durable(place, suspend_after_s=0.01) as durable:
        agent = asking(LOOK, say("They rise."))
        handle = await durable.start(agent, "What?")
        await durable.resume(handle.id, agent)
        async with viewing(place) as desk:
            [shown] = (await desk.get("/api/runs"))["runs"]
            assert (shown["kind"], shown["status"], shown["input"]) == ("durable", "waiting", "What?")
            assert "It is waiting" in shown["why"]
            asked = await desk.waiting(handle.id)
            told = await desk.say(
                handle.id, kind="approve", decision="allow", question_id=asked["question_id"], idempotency_key="mine"
            )
            assert (told["status"], told["told"]) == ("taken", "It is allowed.")
            late = await desk.say(handle.id, kind="approve", decision="deny", question_id=asked["question_id"])
            assert late["status"] == "known"
            assert "answered before: allow, by" in late["told"]
            assert isinstance(await durable.resume(handle.id, agent), Success)
            assert (await desk.get(f"/api/runs/{handle.id}"))["status"] == "done"
            over = await desk.say(handle.id, kind="steer", text="Faster.", idempotency_key="s")
            assert (over["status"], "has ended" in over["told"]) == ("over", True)
            assert (await desk.say(handle.id, kind="follow_up", text="And?"))["http"] == 422


async def test_a_recorded_run_is_approved_steered_and_goes_on(place: str) -> None:
    with Recorder(place, asks=True) as recorder:
        agent = asking(LOOK, say("They rise."), say("They rise, in short."), say("Thanks."))
        going = asyncio.create_task(run(agent, "What?", runtime=Runtime(recorder=recorder)))
        async with viewing(place) as desk:
            id = await desk.newest()
            asked = await desk.waiting(id)
            assert (asked["tool_use_id"], asked["arguments"]) == ("c1", {"topic": "tides"})
            steered = await desk.say(id, kind="steer", text="Be short.", idempotency_key="a")
            assert steered == await desk.say(id, kind="steer", text="Be short.", idempotency_key="a")
            [waits] = (await desk.get(f"/api/runs/{id}/signals"))["signals"]
            assert (waits["kind"], waits["text"], waits["state"]) == ("steer", "Be short.", "waits")
            withdrawn = await desk.say(id, kind="withdraw", text=str(waits["n"]), idempotency_key="w")
            assert withdrawn["status"] == "taken"
            await desk.say(id, kind="steer", text="In one line.", idempotency_key="b")
            await desk.say(id, kind="follow_up", text="Thank you.", idempotency_key="f")
            wrong = await desk.say(id, kind="approve", decision="allow", question_id="0" * 64, idempotency_key="x")
            assert (wrong["status"], "No question waits" in wrong["told"]) == ("known", True)
            given = {"kind": "approve", "decision": "allow", "arguments": {"topic": "moon"}, "idempotency_key": "y"}
            taken = await desk.say(id, **given, question_id=asked["question_id"])
            assert taken["told"] == "It is allowed, with other arguments."
            result = await going
            await recorder.flush()
            said = [each.text for message in result.history for each in message.content if isinstance(each, Text)]
            told = (await desk.get(f"/api/runs/{id}/signals"))["signals"]
            over = await desk.say(id, kind="hold", idempotency_key="z")
    assert isinstance(result, Success)
    assert "In one line." in said
    assert "Thank you." in said
    assert "Be short." not in said
    states = {each["text"]: each["state"] for each in told if each["kind"] in ("steer", "follow_up")}
    assert states == {"Be short.": "withdrawn", "In one line.": "taken", "Thank you.": "taken"}
    assert all("in the viewer" in each["by"] for each in told)
    assert over["status"] == "over"


async def test_two_operators_answer_and_the_second_is_told_who_was_first(place: str) -> None:
    with Recorder(place, asks=True) as recorder:
        going = asyncio.create_task(run(asking(LOOK, say("No.")), "What?", runtime=Runtime(recorder=recorder)))
        async with viewing(place) as one, viewing(place) as two:
            id = await one.newest()
            digest = (await one.waiting(id))["question_id"]
            answers = await asyncio.gather(
                one.say(id, kind="approve", decision="deny", text="not now", question_id=digest, idempotency_key="1"),
                two.say(id, kind="approve", decision="allow", question_id=digest, idempotency_key="2"),
            )
            await going
    assert sorted(each["status"] for each in answers) == ["known", "taken"]
    late = next(each for each in answers if each["status"] == "known")
    assert "answered before" in late["told"]
    assert "in the viewer" in late["told"]


async def test_a_run_is_held_released_and_stopped(path: Path) -> None:
    with Recorder(path, asks=True) as recorder:
        agent = asking(LOOK, say(call("look", {"topic": "sea"}, id="c2")), say("Done."))
        going = asyncio.create_task(run(agent, "What?", runtime=Runtime(recorder=recorder)))
        async with viewing(path) as desk:
            id = await desk.newest()
            digest = (await desk.waiting(id))["question_id"]
            await desk.say(id, kind="hold", idempotency_key="h")
            await desk.say(id, kind="approve", decision="allow", question_id=digest, idempotency_key="a")
            held = await desk.get(f"/api/runs/{id}")
            assert held["iterations"] == 1
            await desk.say(id, kind="release", idempotency_key="r")
            async for kind, told in desk.live(f"?run={id}"):
                if kind == "events" and any(each.get("tool_use_id") == "c2" for each in told):
                    break
            assert (await desk.say(id, kind="stop", text="enough", idempotency_key="s"))["status"] == "taken"
            result = failed(await going)
    assert (result.code, "enough" in result.error.message) == ("EXECUTION_CANCELLED", True)


async def test_a_chat_is_answered_from_outside_while_its_own_user_may_answer_too(path: Path) -> None:
    model = ScriptedModel([say(call("ask_user", {"question": "Which?", "options": ["a", "b"]}, id="q1")), say("So a.")])
    heard: list[str] = []
    with Recorder(path) as recorder:
        agent = Agent(name="lead", model=model, tools=[ask_user])
        async with (
            Chat(
                agent, runtime=Runtime(recorder=recorder), on_event=lambda event: heard.append(type(event).__name__)
            ) as chat,
            viewing(path) as desk,
        ):
            turn = chat.start("Go.")
            id = await desk.newest()
            asked = await desk.waiting(id)
            assert asked["options"] == ["a", "b"]
            told = await desk.say(id, kind="answer", text="a", question_id=asked["id"])
            assert told["told"] == "It is answered."
            assert (await turn).unwrap() == "So a."
            assert chat.state.open_questions == ()
    assert "QuestionAnswered" in heard


async def test_the_last_words_are_shown_while_an_answer_is_written(place: str) -> None:
    may_end = asyncio.Event()

    async def write(request: Request) -> AsyncGenerator[str]:
        yield "The tide rises, and sk-ant-api03-"
        await may_end.wait()
        yield "moon."

    model = ScriptedModel([LOOK, write])
    with Recorder(place, asks=True) as recorder:
        agent = replace(asking(LOOK), model=model)
        going = asyncio.create_task(run(agent, "What?", runtime=Runtime(recorder=recorder)))
        async with viewing(place) as desk:
            id = await desk.newest()
            told: list[dict[str, object]] = []
            async for kind, value in desk.live(f"?run={id}"):
                if kind == "events" and any(each["type"] == "ApprovalRequested" for each in value):
                    digest = next(each["question_id"] for each in value if "question_id" in each)
                    await desk.say(id, kind="approve", decision="allow", question_id=digest)
                if kind == "words":
                    told.append(value)
                    may_end.set()
            await going
    # What may be the beginning of a secret is held back until it is whole.
    first = {"path": ["scout"], "attempt": 1, "iteration": 2, "text": "The tide rises, and "}
    assert (told[0], told[-1]) == (first, {**first, "text": ""})


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": ""}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"host": "evil.example.org"}, 421),
        ({"host": "127.0.0.1.evil.example.org:80"}, 421),
        ({"origin": "https://evil.example.org"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:9"}, 403),  # another program of this machine
        ({"origin": "http://localhost"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({}, 200),
    ],
)
async def test_who_may_ask(path: Path, headers: dict[str, str], status: int) -> None:
    await recorded(path, "one")
    async with viewing(path) as desk:
        assert await desk.status("/api/runs", "GET", None, **headers) == status


async def test_the_token_of_the_address_becomes_a_cookie(path: Path) -> None:
    await recorded(path, "one")
    jar = aiohttp.CookieJar(unsafe=True)
    async with viewing(path) as desk, aiohttp.ClientSession(cookie_jar=jar) as browser:
        async with browser.get(f"{desk.url}/?token=wrong") as answer:
            assert answer.status == 401
        async with browser.get(f"{desk.url}//evil.org?token={TOKEN}&a=b", allow_redirects=False) as answer:
            assert (answer.status, answer.headers["location"]) == (303, "/evil.org?a=b")
            cookie = answer.headers["set-cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=strict" in cookie
            assert TOKEN not in cookie
        async with browser.get(f"{desk.url}/api/runs") as answer:
            assert answer.status == 200
        [(name, value)] = [(each.key, each.value) for each in jar]
        assert name == f"journeyman-view-{urlsplit(desk.url).port}"
        assert await desk.status("/api/runs", "GET", None, authorization=f"Bearer {value}") == 401
        assert await desk.status("/api/runs", "GET", None, authorization="", cookie=f"{name}={TOKEN}") == 401
        assert await desk.status("/api/runs", "GET", None, authorization="", cookie=f"{name}={value}") == 200
        async with browser.get(f"{desk.url}/") as answer:
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'self';")
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "<script" in await answer.text()


async def test_a_viewer_that_is_mounted_asks_for_its_token_and_finds_its_files(path: Path) -> None:
    await recorded(path, "one")
    viewer = instance_of(HttpGuard, create_viewer(path, token=TOKEN, hosts=["a.example.org"]))
    assert isinstance(viewer.app, Starlette)
    outer = Starlette(routes=[Mount("/seen", viewer)], lifespan=viewer.app.router.lifespan_context)
    headers, base = {"authorization": f"Bearer {TOKEN}"}, "http://a.example.org"
    async with (
        outer.router.lifespan_context(outer),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(outer), base_url=base) as client,
    ):
        assert (await client.get("/seen/api/runs")).status_code == 401
        assert len((await client.get("/seen/api/runs", headers=headers)).json()["runs"]) == 1
        assert "<script" in (await client.get("/seen/")).text
        assert (await client.get("/seen/app.js")).headers["content-type"].startswith("text/javascript")
        assert (await client.get("/seen/elsewhere")).headers["location"] == "/seen/"


async def test_a_browser_that_has_the_script_is_not_sent_it_again(path: Path) -> None:
    await recorded(path, "one")
    async with viewing(path) as desk, desk.session.get(f"{desk.url}/app.js") as first:
        assert first.headers["cache-control"] == "no-cache"
        assert await desk.status("/app.js", "GET", None, if_none_match=first.headers["etag"]) == 304
        assert await desk.status("/app.js", "GET", None, if_none_match='"another"') == 200
        assert await desk.status("/app.js", "POST", b"{}", content_type="application/json") == 405
        async with desk.session.get(f"{desk.url}/?token={TOKEN}") as page:
            assert page.headers["link"] == "<api/runs?limit=100>; rel=preload; as=fetch; crossorigin"
        for place in ("/?run=%3Cb%3E", "/?run=a%0D%0Ab", "/?agent=scout", "/?run=a&compare=a,b"):
            async with desk.session.get(f"{desk.url}{place}") as page:
                assert (page.status, page.headers.get("link")) == (200, None), place


async def test_what_cannot_be_said_gets_one_line(path: Path) -> None:
    [id] = await recorded(path, "one")
    async with viewing(path) as desk:
        post, json_type = f"/api/runs/{id}/signals", {"content_type": "application/json"}
        assert await desk.status(post, "POST", b"{}", content_type="text/plain") == 415
        assert await desk.status(post, "POST", b"{", **json_type) == 422
        assert await desk.status(post, "POST", b"[" * 100_000, **json_type) == 422
        assert await desk.status(post, "POST", b'{"kind":"steer"}', **json_type) == 422
        assert await desk.status(post, "POST", b" " * 1_000_001, **json_type) == 413
        assert (
            await desk.status("/api/runs/nope/signals", "POST", b'{"kind":"hold","idempotency_key":""}', **json_type)
            == 404
        )
        for query in ("status=odd", "since=x", "since=nan", "limit=1e99"):
            assert await desk.status(f"/api/runs?{query}") == 422, query
        for missing in ("nope", f"{id}/events/9999", f"{id}/requests/9", f"{id}/export?as=pdf", "nope/events"):
            assert await desk.status(f"/api/runs/{missing}") == 404, missing
        assert await desk.status("/api/nothing") == 404
        assert await desk.status("/../../etc/passwd.txt") == 404
    async with viewing(path, read_only=True) as desk:
        assert (await desk.get("/api/store"))["read_only"] is True
        assert (await desk.say(id, kind="hold"))["http"] == 403


async def test_numbers_that_nothing_has_are_told_so(path: Path) -> None:
    await recorded(path, "one")
    async with viewing(path) as desk:
        id, far = (await desk.get("/api/runs"))["runs"][0]["id"], "9" * 26
        for place in ("events/{}", "requests/{}", "requests/{}/body"):
            assert await desk.status(f"/api/runs/{id}/{place.format(far)}", "GET", None) == 404
        for given in (far, "x", "-1", "1.5"):
            assert await desk.status("/api/live", "GET", None, **{"last_event_id": given}) == 422


async def test_no_more_look_at_once_than_may(path: Path) -> None:
    await recorded(path, "one")
    async with viewing(path) as desk:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, headers={"authorization": f"Bearer {TOKEN}"}) as client:
            looking = await asyncio.gather(*(client.get(f"{desk.url}/api/live") for _ in range(MOST_WATCHERS + 20)))
            assert sorted(each.status for each in looking) == [200] * MOST_WATCHERS + [503] * 20
            for each in looking:
                each.close()


async def test_a_format_that_is_missing_is_told_as_damage(path: Path) -> None:
    await recorded(path, "one")
    tamper.alter(path, tamper.WITHOUT_FORMAT)
    with pytest.raises(StoreError, match="does not say in which format"):
        create_viewer(path)


async def test_who_has_seen_the_end_of_a_run_is_told_that_nothing_follows(path: Path) -> None:
    [id] = await recorded(path, "one")
    async with viewing(path) as desk:
        async with desk.session.get(f"{desk.url}/api/live?run={id}") as answer:
            shown = await answer.text()
        [last] = re.findall(r"^id: (.+)$", shown, re.MULTILINE)
        assert f"id: {last}\nevent: run\n" in shown, "the last message alone has one"
        asked = [await desk.status(f"/api/live?run={id}&after={after}", last_event_id=last) for after in (0, last)]
        assert asked == [204, 204]
        assert await desk.status(f"/api/live?run={id}", last_event_id=str(int(last) - 1)) == 200
        assert await desk.status(f"/api/live?run={id}&after={last}") == 200


async def test_hostile_texts_come_as_they_are(path: Path) -> None:
    text = "<img src=x onerror=alert(1)>\u0000 </script>"
    long = "y" * 5_000_000

    answers = [say(call("pour", {"topic": text}, id="c1")), say("Enough.")]
    agent = Agent(name="scout", model=ScriptedModel(answers), tools=[make_tool("pour", long)])
    (await run(agent, f"{text}\udc80", runtime=Runtime(recorder=path))).unwrap()
    with Recordings(path) as recordings:
        id = recordings.runs()[0].id
    async with viewing(path) as desk:
        page = await desk.get(f"/api/runs/{id}/events?most=4000")
        inputs = next(each for each in page["events"] if each["type"] == "Input")
        assert inputs["input"] == f"{text}?"
        result = next(each for each in page["events"] if each["type"] == "ToolFinished")
        assert result["tool_result"] == {"cut": "y" * 4000, "characters": len(long)}
        whole = await desk.get(f"/api/runs/{id}/events")
        assert whole["more"] is True  # it is cut into pages by bytes


async def test_the_stream_tells_when_the_store_is_gone(path: Path) -> None:
    await recorded(path, "one")
    async with viewing(path) as desk:
        stream = desk.live()
        path.rename(path.with_name("elsewhere.db"))
        kinds = [kind async for kind, _ in stream]
    assert kinds[-1] == "gone"


async def test_who_leaves_while_the_store_is_opened_or_read_leaves_nothing_open_and_nobody_reads_beside(
    postgres: PostgresServer, emptied: str
) -> None:
    reader, begun, may_end, order = Reader(emptied), threading.Event(), threading.Event(), list[str]()

    def read_long(_: StoreReader) -> None:
        begun.set()
        may_end.wait(10)
        order.append("first")

    opening = asyncio.create_task(reader.read(lambda _: None))
    await asyncio.sleep(0)
    opening.cancel()
    await asyncio.wait({opening})
    await reader.close()
    async with asyncio.timeout(30):
        while postgres.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'journeyman reader'"):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    first = asyncio.create_task(reader.read(read_long))
    await asyncio.to_thread(begun.wait, 10)
    first.cancel()
    second = asyncio.create_task(reader.read(lambda _: order.append("second")))
    await asyncio.wait({second}, timeout=0.05)
    may_end.set()
    await asyncio.wait({first, second})
    assert (first.cancelled(), order) == (True, ["first", "second"])
    await reader.close()


async def test_a_word_that_is_on_its_way_when_the_viewer_closes_leaves_nothing_open(
    postgres: PostgresServer, emptied: str
) -> None:
    steering = Steering(emptied)
    saying = asyncio.create_task(steering.say("nobody", Given(kind="stop", idempotency_key="d"), is_durable=True))
    await asyncio.sleep(0)
    await steering.close()
    await asyncio.wait({saying})
    assert isinstance(saying.exception(), RunUnknown)
    async with asyncio.timeout(30):
        while postgres.execute("SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'journeyman w%'"):  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_the_stream_goes_on_when_the_connections_to_a_database_were_cut(
    postgres: PostgresServer, emptied: str
) -> None:
    with Recorder(emptied, asks=True) as recorder:
        going = asyncio.create_task(run(asking(LOOK, say("Yes.")), "What?", runtime=Runtime(recorder=recorder)))
        async with viewing(emptied) as desk:
            id = await desk.newest()
            asked = await desk.waiting(id)
            stream = desk.live(f"?run={id}&after={asked['n']}")
            first = await anext(stream)
            postgres.kill_connections("application_name LIKE 'journeyman r%%'")
            taken = await desk.say(id, kind="approve", decision="allow", question_id=asked["question_id"])
            ended = [told["status"] async for kind, told in stream if kind == "run"]
            await going
    assert (first[0], taken["status"], ended[-1]) == ("run", "taken", "done")


async def test_a_port_that_is_taken_names_the_next_free_one(path: Path) -> None:
    await recorded(path, "one")
    last = ("127.0.0.1", 65_535)
    with (
        socket.create_server(last),
        pytest.raises(OSError, match="the port 65535 is taken, and so are those behind it"),
    ):
        await serve_view(path, port=last[1])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"the port {port} is taken; the next free one is {port + 1}|next free one"):
            await serve_view(path, port=port)


async def test_others_get_in_with_a_token_only(path: Path) -> None:
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"address": "::"}, "NO_TOKEN"),
        ({"names": [""]}, "NO_HOST_NAME"),
    )
    for options, code in refused:
        with pytest.raises(DefinitionError) as caught:
            await serve_view(path, **options)
        assert caught.value.problems[0].code == code


async def test_a_store_that_cannot_be_read_is_said_before_anything_is_served(path: Path) -> None:
    with pytest.raises(StoreError, match="There is no store"):
        await serve_view(path)
    path.write_text("a file of another program, which is long enough to be looked at " * 40)
    path.chmod(0o600)
    with pytest.raises(StoreError, match="not a store"):
        await serve_view(path)
