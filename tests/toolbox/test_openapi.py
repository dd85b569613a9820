"""Tools from an OpenAPI document: what is sent, what comes back, and what is refused before anything is sent."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman import Agent, DefinitionError, run
from journeyman.definition.narrowing import as_object
from journeyman.testing import ScriptedModel, call
from journeyman.toolbox import openapi_tools
from journeyman.tools.tools import AnyTool
from journeyman.types import ToolUse
from tests.play import succeeded, texts

if TYPE_CHECKING:
    import httpx2

Sent = list["httpx2.Request"]
Answering = Callable[["httpx2.Request"], "httpx2.Response"]
PET = {"type": "object", "properties": {"name": {"type": "string"}, "mother": {"$ref": "#/components/schemas/Pet"}}}


def parameter(name: str, place: str, kind: str = "string", **more: object) -> dict[str, Any]:
    return {"name": name, "in": place, "schema": {"type": kind}, **more}


def body(schema: object, kind: str = "application/json") -> dict[str, Any]:
    return {"required": True, "content": {kind: {"schema": schema}}}


def document(paths: dict[str, Any], **more: Any) -> dict[str, Any]:
    schemas = {"Pet": PET, "Old": {"type": "integer", "nullable": True, "minimum": 1, "exclusiveMinimum": True}}
    parts = {"schemas": schemas, "parameters": {"id": parameter("id", "path", "integer"), "loop": {"$ref": LOOP}}}
    head = {"openapi": "3.0.3", "servers": [{"url": "https://{at}/v1/", "variables": {"at": {"default": "pets.test"}}}]}
    return {**head, "paths": paths, "components": parts, **more}


LOOP = "#/components/parameters/loop"
PETS = document(
    {
        "/pets/{id}": {
            "parameters": [{"$ref": "#/components/parameters/id"}],
            "get": {"operationId": "getPet", "summary": "One pet.", "description": "By its number."},
            "put": {
                "operationId": "putPet",
                "parameters": [parameter("id", "query"), parameter("X-Why", "header", description="The reason.")],
                "requestBody": body({"$ref": "#/components/schemas/Pet"}),
            },
        },
        "/files/{name}": {"delete": {"parameters": [parameter("name", "path")], "deprecated": True}},
        "/search": {
            "get": {
                "operationId": "search pets",
                "parameters": [
                    parameter("tags", "query", "array", schema={"type": "array", "items": {"type": "string"}}),
                    parameter("ids", "query", "array", explode=False),
                    parameter("box", "query", "object", style="deepObject"),
                    {"name": "filter", "in": "query", "content": {"application/json": {"schema": {}}}},
                    parameter("age", "query", schema={"$ref": "#/components/schemas/Old"}),
                    parameter("session", "cookie"),
                    parameter("Authorization", "header"),
                ],
            }
        },
        "/form": {"post": {"operationId": "form", "requestBody": body(PET, "application/x-www-form-urlencoded")}},
    }
)


def client_of(answer: Answering, sent: Sent) -> httpx2.AsyncClient:
    import httpx2  # noqa: PLC0415 - the packages of others take long, and no other test of the room needs it

    def handle(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return answer(request)

    return httpx2.AsyncClient(transport=httpx2.MockTransport(handle), headers={"authorization": "Bearer key"})


def respond(status: int, content: str | bytes = b"", **headers: str) -> Answering:
    def answer(_: httpx2.Request) -> httpx2.Response:
        import httpx2  # noqa: PLC0415 - as above

        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx2.Response(status, content=content, headers=named)

    return answer


REX = respond(200, '{"name":"Rex"}', content_type="application/json")


def tools_of(spec: Any = PETS, **options: Any) -> dict[str, AnyTool]:  # noqa: ANN401 - users' data
    return {each.name: each for each in openapi_tools(spec, client=client_of(REX, []), **options).known_tools or ()}


async def played(name: str, arguments: dict[str, Any], answer: Answering = REX) -> tuple[str, Sent]:
    """Return what the model reads of a call, and what was sent."""
    sent: Sent = []
    async with client_of(answer, sent) as client:
        agent = Agent(
            name="keeper",
            model=ScriptedModel([ToolUse("1", name, json.dumps(arguments)), "Done."]),
            tools=[openapi_tools(PETS, client=client)],
        )
        [text] = texts(succeeded(await run(agent, "Go.")))
    return text, sent


SENT: list[tuple[str, dict[str, Any], str, str, bytes]] = [
    ("getPet", {"id": 7}, "GET", "/v1/pets/7", b""),
    (
        "putPet",
        {"id": 7, "query_id": "a&b=c", "X-Why": "new", "body": {"name": "Rex"}},
        "PUT",
        "/v1/pets/7?id=a%26b%3Dc",
        b'{"name":"Rex"}',
    ),
    (
        "delete_files_name",
        {"name": "../a b?#%2e{name}é"},
        "DELETE",
        "/v1/files/..%2Fa%20b%3F%23%252e%7Bname%7D%C3%A9",
        b"",
    ),
    (
        "search_pets",
        {"tags": ["a", "b"], "ids": [1, 2], "box": {"w": 1}, "filter": {"x": [True]}, "age": None},
        "GET",
        "/v1/search?tags=a&tags=b&ids=1%2C2&box%5Bw%5D=1&filter=%7B%22x%22%3A%5Btrue%5D%7D",
        b"",
    ),
    ("form", {"body": {"name": "Rex & Co"}}, "POST", "/v1/form", b"name=Rex+%26+Co"),
]


@pytest.mark.parametrize(("name", "arguments", "method", "target", "content"), SENT)
async def test_every_argument_goes_to_its_place(
    name: str, arguments: dict[str, Any], method: str, target: str, content: bytes
) -> None:
    text, [request] = await played(name, arguments)
    assert (request.method, request.url.host, request.url.raw_path.decode()) == (method, "pets.test", target)
    assert request.content == content
    assert request.headers["authorization"] == "Bearer key"
    assert request.headers.get("x-why") == arguments.get("X-Why")
    assert text == '{"name":"Rex"}'


def test_tools_say_what_the_document_says() -> None:
    tools = tools_of()
    get, put, search = tools["getPet"], tools["putPet"], tools["search_pets"]
    assert [tool.effect for tool in tools.values()] == ["pure", None, None, "pure", None]
    assert all(tool.untrusted and tool.external for tool in tools.values())
    assert [get.description, tools["delete_files_name"].description] == [
        "One pet.\n\nBy its number.",
        "Deprecated. DELETE /files/{name}",
    ]
    assert put.input_schema["required"] == ["id", "body"]
    assert put.input_schema["$defs"] == {
        "Pet": {"type": "object", "properties": {"name": {"type": "string"}, "mother": {"$ref": "#/$defs/Pet"}}}
    }
    assert search.input_schema["$defs"] == {"Old": {"type": ["integer", "null"], "exclusiveMinimum": 1}}
    assert [*as_object(search.input_schema["properties"])] == ["tags", "ids", "box", "filter", "age"]
    assert tools_of(effects={"putPet": "idempotent", "getPet": "once"})["putPet"].effect == "idempotent"


@pytest.mark.parametrize(
    ("only", "names"),
    [
        (["getPet", "form"], ["getPet", "form"]),
        (["*Pet", "!getPet"], ["putPet"]),
        (["!*Pet", "!search*"], ["delete_files_name", "form"]),
        (["DELETE /files/{name}"], ["delete_files_name"]),
    ],
)
def test_only_some_are_taken(only: list[str], names: list[str]) -> None:
    assert [*tools_of(only=only)] == names


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("getPet", {"id": "7"}, "Invalid arguments for tool 'getPet'"),
    ("delete_files_name", {"name": ".."}, "name is '..', which would lead to another path"),
    ("delete_files_name", {"name": ""}, "name is '', which would lead to another path"),
    ("putPet", {"id": 1, "body": {}, "X-Why": "a\r\nHost: evil.test"}, "cannot stand in a header"),
    ("putPet", {"id": 1, "body": {"name": 5}}, "body.name"),
    ("putPet", {"id": 1, "body": {}, "extra": 1}, "extra"),
]


@pytest.mark.parametrize(("name", "arguments", "told"), REFUSED)
async def test_an_argument_that_would_lead_elsewhere_is_not_sent(
    name: str, arguments: dict[str, Any], told: str
) -> None:
    text, sent = await played(name, arguments)
    assert told in text
    assert sent == []


def fail(_: httpx2.Request) -> httpx2.Response:
    raise OSError("nobody is there")


ANSWERS: list[tuple[Answering, str]] = [
    (respond(404, "no such pet"), "HTTP 404 Not Found\nno such pet"),
    (respond(302, location="http://evil.test"), "The service refers to http://evil.test, which was not followed"),
    (respond(200, b"\x00\x01", content_type="image/x"), "2 bytes of type image/x are left out"),
    (respond(200, "x" * 2_000_000), "[Only the first 1,000,000 bytes are shown.]"),
    (respond(204), "(no output)"),
    (fail, "nobody is there"),
]


@pytest.mark.parametrize(("answer", "told"), ANSWERS)
async def test_every_answer_is_a_result(answer: Answering, told: str) -> None:
    text, sent = await played("getPet", {"id": 1}, answer)
    assert told in text
    assert len(sent) == 1


def broken(**operation: object) -> dict[str, Any]:
    return document({"/x": {"post": {"operationId": "x", **operation}}})


CHAIN = {f"S{n}": {"properties": {"next": {"$ref": f"#/components/schemas/S{n + 1}"}}} for n in range(600)}
DEEP: dict[str, Any] = functools.reduce(lambda inner, _: {"items": inner}, range(5_000), {})
WRONG: list[tuple[Any, str]] = [
    ({"swagger": "2.0", "paths": {}}, "It is Swagger 2.0.*Convert it"),
    ({"openapi": "4.0.0"}, "of version '4.0.0'"),
    ("openapi: 3.0.0", "no JSON.*YAML"),
    (document({}, servers=[{"url": "/v1"}]), "'/v1', which is no whole URL.*base_url"),
    (document({}, servers=[{"url": "https://me:key@pets.test"}]), "no whole URL"),
    (
        document({"/x": {"get": {"operationId": "a"}}, "/y": {"get": {"operationId": "a"}}}),
        "GET /x and GET /y are all called 'a'",
    ),
    (broken(requestBody=body({}, "multipart/form-data")), r"x \(POST /x\) takes a body of multipart/form-data.*only="),
    (broken(parameters=[{"$ref": LOOP}]), "refers to itself, by #/components/parameters/loop"),
    (broken(parameters=[{"$ref": "https://evil.test/a.json"}]), "another document, https://evil.test/a.json"),
    (broken(requestBody=body({"$ref": "#/components/schemas/Nobody"})), "Nobody, which is not there"),
    (broken(parameters=[parameter("a", "query", style="spaceDelimited")]), "the parameter 'a' as spaceDelimited"),
    (broken(parameters=[parameter("a\r\nb", "header")]), "has the parameter"),
    (broken(servers=[{"url": "https://evil.test"}]), "a server of its own"),
    (document({"/x/{id}": {"get": {}}}), "has no parameter for id"),
    (broken(requestBody=body({"type": "no such type"})), "a schema that checks nothing"),
    (
        {**broken(requestBody=body({"$ref": "#/components/schemas/S0"})), "components": {"schemas": CHAIN}},
        "more than 500 others",
    ),
    (broken(requestBody=body(DEEP)), "no JSON|nested too deep"),
    (document({"/x": {"$ref": "#/paths/~1x"}}), "The path /x refers to itself"),
]


@pytest.mark.parametrize(("spec", "told"), WRONG, ids=[row[1][:24] for row in WRONG])
def test_what_no_tool_can_carry_is_refused_by_name(spec: Any, told: str) -> None:  # noqa: ANN401 - users' data
    with pytest.raises(DefinitionError, match=told):
        tools_of(spec)


def test_the_caller_says_where_the_service_is_and_misspelt_names_are_told() -> None:
    assert [*tools_of({**PETS, "servers": [{"url": "/v1"}]}, base_url="http://127.0.0.1:1/api")]
    for options, told in ({"only": ["getPat"]}, "getPat.*There are: getPet"), ({"effects": {"x": "pure"}}, "names 'x'"):
        with pytest.raises(DefinitionError, match=told):
            tools_of(**options)


def test_a_document_given_as_json_and_a_schema_of_a_schema_hold() -> None:
    turning = document({"/x": {"post": {"operationId": "x", "requestBody": body({"$ref": "#/components/schemas/A"})}}})
    turning["components"]["schemas"] = {
        "A": {"$ref": "#/components/schemas/B"},
        "B": {"$ref": "#/components/schemas/A"},
    }
    assert [*tools_of(json.dumps(PETS))] == [*tools_of()]
    assert tools_of(turning)["x"].parse('{"body": 1}') == {"body": 1}  # it says nothing, in no time


@given(st.text(), st.text())
async def test_no_text_leaves_its_place_in_the_path(first: str, second: str) -> None:
    spec = document({"/a/{x}/b/{y}": {"get": {"operationId": "x", "parameters": [parameter(n, "path") for n in "xy"]}}})
    sent: Sent = []
    async with client_of(REX, sent) as client:
        tools = openapi_tools(spec, client=client)
        agent = Agent(name="a", model=ScriptedModel([call("x", x=first, y=second), "Done."]), tools=[tools])
        succeeded(await run(agent, "Go."))
    for request in sent:
        path = request.url.raw_path.decode()
        assert [path.split("/")[place] for place in (1, 2, 4)] == ["v1", "a", "b"]
        assert (path.count("/"), request.url.query, request.url.fragment) == (5, b"", "")
