"""The OpenAPI document says of bodies and answers what the server does with them."""

from typing import Any

import orjson
import pytest
from jsonschema_rs import Draft202012Validator

from tests.serve.http_served import Json, Served, clerk, planner, serving

JSON_TYPE = "application/json"
SAY: Json = {"id": "1", "role": "user", "content": "Hi."}
THREAD: Json = {"threadId": "t", "runId": "r", "messages": [SAY]}
TEXTS: list[Any] = [{"text": "Go."}, {"text": " "}, {"text": 7}, {}, {"text": "Go.", "decision": "allow"}, [], "Go."]
FIELDS: list[Json] = [
    {},
    {"extent": "always"},
    {"extent": "often"},
    {"reason": "no"},
    {"reason": 7},
    {"arguments": {"a": 1}, "reason": ""},
    {"arguments": 7},
]
ANSWERS: list[Any] = [
    {"decision": word, **more}
    for word in ("allow", "deny", "stop", "rewrite", "perhaps", None, ["allow"])
    for more in FIELDS
]
BODIES: dict[str, list[Any]] = {
    "/runs/{id}/stop": [{}, {"reason": "no"}, {"reason": ""}, {"reason": None}, {"why": "no"}, []],
    "/runs/{id}/steer": TEXTS,
    "/chats/{id}/answers/{question}": [*TEXTS, *ANSWERS],
    "/agents/clerk/runs": [{"input": "Hi."}, {"input": ""}, {"input": 7}, {}, {"input": "Hi.", "model": "m"}, []],
    "/agents/planner/chats/{id}/turns": [
        {"input": {"city": "Oslo", **more}} for more in ({"days": 1}, {}, {"days": 1.5})
    ],
    "/agents/clerk/agui": [THREAD, {**THREAD, "threadId": "a b"}, {**THREAD, "messages": []}, {}, []],
    "/agents/planner/agui": [{**THREAD, "forwardedProps": {"input": {"city": "Oslo", "days": 2}}}, THREAD],
}


def is_valid(document: Json, schema: Json, value: object) -> bool:
    return Draft202012Validator({**schema, "components": document["components"]}).is_valid(value)


async def published(served: Served) -> Json:
    return (await served.ask("GET", "/openapi.json"))[1]


async def test_what_the_document_says_of_a_body_is_what_is_taken() -> None:
    async with serving([clerk(), planner()]) as served:
        document = await published(served)
        for path, bodies in BODIES.items():
            schema = document["paths"][path]["post"]["requestBody"]["content"][JSON_TYPE]["schema"]
            for body in bodies:
                status, answer = await served.ask("POST", path.format(id="none", question="abcdef"), body)
                assert (status not in (400, 422, 500)) == is_valid(document, schema, body), (path, body, answer)


async def test_what_is_answered_fits_the_document() -> None:
    async with serving([clerk()]) as served:
        document = await published(served)

        async def ask(method: str, path: str, body: object = None, **headers: str) -> Any:  # noqa: ANN401 - JSON
            place = path.format(id="one", question="abcdef")
            status, answer = await served.ask(method, place.replace("{agent}", "clerk"), body, **headers)
            told = document["paths"][path.replace("{agent}", "clerk")][method.lower()]["responses"][str(status)]
            assert is_valid(document, told["content"][JSON_TYPE]["schema"], answer), (path, answer)
            return answer

        later = {"idempotency_key": "one", "prefer": "respond-async"}
        await ask("POST", "/agents/clerk/runs", {"input": "send"}, **later)
        await ask("POST", "/agents/clerk/chats/{id}/turns", {"input": "send"}, prefer="respond-async")
        for place in ("/runs", "/chats"):
            await served.waiting(f"{place}/one")
            assert (await ask("GET", f"{place}/{{id}}"))["questions"]
            assert (await ask("GET", place))[place[1:]]
            await ask("POST", f"{place}/{{id}}/answers/{{question}}", {"decision": "deny"})
            await ask("POST", f"{place}/{{id}}/stop", {})
        await served.told("GET", "/runs/one/events")
        assert (await ask("GET", "/runs/{id}"))["result"]
        for path in ("/health", "/ready", "/agents"):
            await ask("GET", path)


async def test_a_wrong_method_is_told_all_that_the_document_has() -> None:
    async with serving([clerk()]) as served:
        for path, operations in (await published(served))["paths"].items():
            async with served.client.put(served.url + path.format(id="one", question="abcdef")) as response:
                allowed = {each.strip().lower() for each in response.headers["allow"].split(",")}
                assert (response.status, allowed - {"head"}) == (405, {*operations}), path


HOSTILE: dict[str, tuple[bytes, int, str]] = {
    "levels in an input": (b'{"input": %s}' % (b'{"city":' * 300 + b"1" + b"}" * 300), 422, "254 levels"),
    "levels in arguments": (b'{"decision": "rewrite", "arguments": %s}' % (b"[" * 900 + b"]" * 900), 422, "254 levels"),
    "no number": (b'{"input": NaN}', 400, "not JSON"),
    "half a surrogate pair": (b'{"text": "\\ud800"}', 400, "not JSON"),
    "400 digits": (b'{"text": %s}' % (b"9" * 400), 422, "very large number"),
    "a name of two lines": (b'{"text": "Go.", "a\\nb": 1}', 422, "a b: it is not known"),
    "a name twice": (b'{"text": "Go.", "text": 7}', 422, "got 7"),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_body_gets_one_clear_line(name: str) -> None:
    data, expected, words = HOSTILE[name]
    paths = ("/agents/planner/runs", "/agents/planner/agui", "/runs/r/steer", "/runs/r/answers/abcdef")
    async with serving([planner()]) as served:
        messages: list[str] = []
        for path in paths:
            headers = {"Content-Type": JSON_TYPE}
            async with served.client.post(served.url + path, data=data, headers=headers) as response:
                error = orjson.loads(await response.read())["error"]
                assert (response.status, "\n" in error["message"]) == (expected, False), (path, error)
                messages.append(error["message"])
        assert any(words in each for each in messages), messages
