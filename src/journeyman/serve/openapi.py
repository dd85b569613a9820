"""The OpenAPI document of what is served: each agent with the input that it takes."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from typing import Any, Final, TypeAlias

from pydantic import JsonValue
from pydantic_core import from_json

from journeyman.agent import Agent
from journeyman.files import read_text
from journeyman.serve.live import ServeLimits
from journeyman.types import JsonObject
from journeyman.version import package_version

Schema: TypeAlias = dict[str, Any]
"""JSON that is written here, and parsed by nobody."""

ID: Final = "^[A-Za-z0-9._~-]{1,100}$"
"""The form of what clients call their runs, chats and requests."""
KEY: Final = r'^[ \t]*(?:[A-Za-z0-9._~-]{1,100}|"[A-Za-z0-9._~-]{1,100}")[ \t]*$'
"""The form of an Idempotency-Key: such a name, in quotes as its draft has it, or without, as most clients send it.

Blanks around the value of a header are no part of it: HTTP leaves them out.
"""
MOST: Final = 100
"""How much of a list is given at once."""
PLACE: Final = r"^[0-9]{1,15}\.[0-9]{9}_[ -~]{1,300}$"
"""The form of a place in a list."""


@cache
def _read_parts() -> Mapping[str, Any]:
    """Return the parts of the document that are the same for all agents."""
    return from_json(read_text("journeyman.serve", "openapi.json"))


def openapi(agents: Mapping[str, Agent[Any, Any, Any]], limits: ServeLimits) -> Schema:
    """Return the document."""
    said, text = _read_parts()["said"], _read_parts()["text"]
    paths: dict[str, Schema] = {
        "/health": _get("The server is alive", said, errors=()),
        "/ready": _get("The server takes requests", said, errors=(503,)),
        "/agents": _get("The agents that are served", {"type": "object", "required": ["agents"]}, errors=(401,)),
    }
    for name, agent in agents.items():
        body = {"type": "object", "required": ["input"], "properties": {"input": {"$ref": _input_place(name)}}}
        given = _json_body({**body, "additionalProperties": False})
        paths[f"/agents/{name}/runs"] = _run_operation(f"Run {name}", agent.description, given)
        paths[f"/agents/{name}/chats/{{id}}/turns"] = _run_operation(
            f"Say something to {name}", agent.description, given, "id"
        )
        paths[f"/agents/{name}/agui"] = _agui(name, agent)
    for place, what, document in (("runs", "run", "Run"), ("chats", "chat", "Chat")):
        paths[f"/{place}"] = _list_operation(place)
        shown: Schema = {"$ref": f"#/components/schemas/{document}"}
        gone = {key: each for key, each in _answers(204, "", {}, (401, 404, 409, 503)).items() if key != "204"}
        delete: Schema = {"summary": f"Delete a {what} that has ended", "parameters": _path_parameters("id")}
        delete["responses"] = {"204": {"description": "It is deleted"}, **gone}
        paths[f"/{place}/{{id}}"] = _get(f"A {what}", shown, "id", errors=(401, 404)) | {"delete": delete}
        paths[f"/{place}/{{id}}/events"] = _events(what)
        reason: Schema = {"type": "object", "properties": {"reason": text}, "additionalProperties": False}
        words: Schema = {**reason, "required": ["text"], "properties": {"text": text}}
        paths[f"/{place}/{{id}}/stop"] = _post(f"Stop a {what}", reason, "id")
        paths[f"/{place}/{{id}}/steer"] = _post(f"Say something to a {what} that goes on", words, "id")
        paths[f"/{place}/{{id}}/answers/{{question}}"] = _post(
            "Answer what waits", _read_parts()["answer"], "id", "question"
        )
    components: dict[str, Schema] = _read_parts()["schemas"] | {
        _input_place(name).rpartition("/")[2]: _move_references(_input_schema(agent), _input_place(name))
        for name, agent in agents.items()
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Agents",
            "version": package_version(),
            "description": f"Bodies have {limits.body_bytes:,} bytes at most.",
        },
        "paths": paths,
        "components": {"schemas": components},
    }


def _input_place(name: str) -> str:
    """Return where the schema of an agent's input stands in the document."""
    return f"#/components/schemas/{name}.input"


_NAMED: Final = frozenset(("properties", "$defs", "patternProperties", "dependentSchemas"))
"""Keywords whose values hold schemas under names."""
_DATA: Final = frozenset(("const", "default", "enum", "examples"))
"""Keywords whose values are no schemas."""


def _move_references(schema: JsonValue, place: str) -> JsonValue:
    """Return a schema that is no document of its own any more: its references begin at its new place."""
    if isinstance(schema, list):
        return [_move_references(each, place) for each in schema]
    if not isinstance(schema, dict):
        return schema
    moved: JsonObject = {}
    for key, value in schema.items():
        if key == "$ref" and isinstance(value, str) and value.startswith("#"):
            moved[key] = f"{place}{value[1:]}"
        elif key in _NAMED and isinstance(value, dict):
            moved[key] = {name: _move_references(each, place) for name, each in value.items()}
        else:
            moved[key] = value if key in _DATA else _move_references(value, place)
    return moved


def _input_schema(agent: Agent[Any, Any, Any]) -> Schema:
    if agent.input is str:
        return _read_parts()["text"]
    schema: Schema = agent.plan.input.input_schema
    if not agent.plan.input.is_wrapped:
        return schema
    properties = schema["properties"]
    definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    return {**properties["value"], **definitions}


def _list_operation(place: str) -> Schema:
    limit: Schema = {"type": "integer", "minimum": 1, "maximum": MOST, "default": 50}
    parameters: list[Schema] = [
        {"name": "limit", "in": "query", "required": False, "schema": limit},
        {"name": "before", "in": "query", "required": False, "schema": {"type": "string", "pattern": PLACE}},
    ]
    further: Schema = {"type": ["string", "null"], "description": "The `before` of the next page."}
    properties: Schema = {place: {"type": "array", "items": {"type": "object", "required": ["id"]}}, "next": further}
    schema: Schema = {"type": "object", "required": [place, "next"], "properties": properties}
    operation = _get(f"Your {place}, newest first", schema, errors=(400, 401, 503))
    operation["get"]["parameters"] = parameters
    return operation


def _json_body(schema: Schema) -> Schema:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _answers(status: int, what: str, schema: Schema, errors: tuple[int, ...]) -> Schema:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    told = _read_parts()["errors"]
    listed = {str(each): {"description": told[str(each)], "content": error} for each in (*errors, 500)}
    answers: dict[str, Any] = {str(status): {"description": what, "content": {"application/json": {"schema": schema}}}}
    return answers | listed


def _path_parameters(*names: str) -> list[Schema]:
    question: Schema = _read_parts()["schemas"]["Question"]["properties"]["id"]
    forms: dict[str, Schema] = {"id": {"type": "string", "pattern": ID}, "question": question}
    return [{"name": name, "in": "path", "required": True, "schema": forms[name]} for name in names]


def _get(summary: str, schema: Schema, *names: str, errors: tuple[int, ...]) -> Schema:
    operation = {
        "summary": summary,
        "parameters": _path_parameters(*names),
        "responses": _answers(200, "OK", schema, errors),
    }
    return {"get": operation}


_REFUSED: Final = (400, 401, 404, 408, 409, 413, 422, 503)


def _post(summary: str, body: Schema, *names: str) -> Schema:
    responses = _answers(202, "It was taken", _read_parts()["said"], _REFUSED)
    content = _json_body(body) | {"required": "required" in body or "oneOf" in body}
    operation = {
        "summary": summary,
        "parameters": _path_parameters(*names),
        "requestBody": content,
        "responses": responses,
    }
    return {"post": operation}


def _run_operation(summary: str, description: str, content: Schema, *names: str) -> Schema:
    result: Schema = {"$ref": "#/components/schemas/Result"}
    responses = _answers(200, "How it has ended", result, (*_REFUSED, 429))
    answers = responses
    answers["200"]["content"]["text/event-stream"] = {}
    begun = {"type": "object", "required": ["id", "agent", "status"]}
    answers |= {"202": {"description": "It has begun", "content": {"application/json": {"schema": begun}}}}
    # What an agent's own input check refuses is a result, too.
    both: list[Schema] = [{"$ref": "#/components/schemas/Error"}, result]
    answers["422"]["content"] = {"application/json": {"schema": {"anyOf": both}}}
    headers: list[Schema] = [
        {"name": "Idempotency-Key", "in": "header", "required": False, "schema": {"type": "string", "pattern": KEY}},
        {"name": "Prefer", "in": "header", "required": False, "schema": {"type": "string"}},
    ]
    parameters = [*_path_parameters(*names), *headers]
    operation = {"summary": summary, "description": description, "parameters": parameters, "requestBody": content}
    return {"post": {**operation, "responses": responses}}


def _stream(operation: dict[str, Any], errors: tuple[int, ...]) -> dict[str, Any]:
    answers = _answers(200, "Events", {}, errors)
    answers["200"]["content"] = {"text/event-stream": {}}
    answers["204"] = {"description": "The client has the last event, and no more will come"}
    return {**operation, "responses": answers}


def _events(what: str) -> Schema:
    after: Schema = {
        "name": "after",
        "in": "query",
        "required": False,
        "schema": {"type": "integer", "minimum": 0, "maximum": 10**15 - 1},
    }
    last: Schema = {
        "name": "Last-Event-ID",
        "in": "header",
        "required": False,
        "schema": {"type": "string", "pattern": r"^[ \t]*[0-9]{1,15}[ \t]*$"},
    }
    operation = {"summary": f"The events of a {what}", "parameters": [*_path_parameters("id"), after, last]}
    return {"get": _stream(operation, (400, 401, 404, 409, 429, 503))}


def _agui(name: str, agent: Agent[Any, Any, Any]) -> Schema:
    given = deepcopy(_read_parts()["agui"])
    given["properties"]["threadId"]["pattern"] = ID
    if agent.input is not str:
        forwarded: Schema = {
            "type": "object",
            "required": ["input"],
            "properties": {"input": {"$ref": _input_place(name)}},
        }
        given["required"].append("forwardedProps")
        given["properties"]["forwardedProps"] = forwarded
    operation = {"summary": f"{name}, by the AG-UI protocol", "requestBody": _json_body(given)}
    return {"post": _stream(operation, (*_REFUSED, 429))}
