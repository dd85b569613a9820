"""The OpenAPI document of what is served: each agent with the input that it takes."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any, Final, TypeAlias

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode
from starlette.types import ASGIApp

from journeyman.agent import Agent
from journeyman.gate import DECISION_WORDS
from journeyman.machine.version import package_version
from journeyman.serve import documents

Schema: TypeAlias = dict[str, Any]
"""JSON that is written here, and parsed by nobody."""

KEY: Final = r'^[ \t]*(?:[A-Za-z0-9._~-]{1,100}|"[A-Za-z0-9._~-]{1,100}")[ \t]*$'
"""The form of an Idempotency-Key: such a name, in quotes as its draft has it, or without, as most clients send it.

Blanks around the value of a header are no part of it: HTTP leaves them out.
"""
MOST: Final = 100
"""How much of a list is given at once."""
LISTED: Final = 50
"""The entries of a page, for whoever names no number."""
NUMBER: Final = "[0-9]{1,15}"
"""The form of the number of an event."""
PLACE: Final = r"^[0-9]{1,15}\.[0-9]{9}_[ -~]{1,300}$"
"""The form of a place in a list."""

Answers: TypeAlias = tuple[tuple[Any, ...], ...]
"""The answers of an operation: each a status, a description, and the classes of the document. `bytes` are events."""
TAKEN: Final[Answers] = ((202, "It was taken", documents.Said),)
DELETED: Final[Answers] = ((204, "It is deleted"),)
EVENTS: Final[Answers] = ((200, "Events", bytes), (204, "The client has the last event, and no more will come"))
ENDED: Final[Answers] = (
    (200, "How it has ended", documents.ResultDocument, bytes),
    (202, "It has begun", documents.BegunDocument),
)
_ERRORS: Final = {
    400: "The body is not JSON, or a header or number cannot be used.",
    401: "The server does not know who asks.",
    404: "There is no such thing, or it is another owner's.",
    408: "The body did not come in time.",
    409: "It is in use, has ended, or waits for nothing of the kind.",
    413: "The body is too long.",
    415: "The body has another type than JSON, or is encoded.",
    422: "The body does not fit: `issues` says where.",
    429: "Too many runs are under way: see `Retry-After`.",
    500: "The request failed.",
    503: "The server is closing, or too many clients follow runs.",
}
_REFUSED: Final = {400, 401, 404, 408, 409, 413, 415, 422, 503}
"""The statuses of refused bodies."""


def _parameter(name: str, place: str, **schema: object) -> Schema:
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


PAGE: Final = (
    _parameter("limit", "query", type="integer", minimum=1, maximum=MOST, default=LISTED),
    _parameter("before", "query", type="string", pattern=PLACE),
)
AFTER: Final = (
    _parameter("after", "query", type="integer", minimum=0, maximum=10**15 - 1),
    _parameter("Last-Event-ID", "header", type="string", pattern=rf"^[ \t]*{NUMBER}[ \t]*$"),
)
RUN_HEADERS: Final = (
    _parameter("Idempotency-Key", "header", type="string", pattern=KEY),
    _parameter("Prefer", "header", type="string"),
)
_IN_PATH: Final = {
    "id": _parameter("id", "path", type="string", pattern=documents.ID),
    "question": _parameter("question", "path", type="string", pattern=documents.QUESTION),
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of a path: what it takes and answers, and what does it."""

    method: str
    path: str
    handler: Callable[..., Awaitable[ASGIApp]]
    summary: str = ""
    """It has `{agent}` for the name of an agent. Empty: the document does not tell of the operation."""
    answers: Answers = TAKEN
    bodies: tuple[type, ...] = ()
    """The classes of which its body is one."""
    parameters: tuple[Schema, ...] = ()
    errors: tuple[int, ...] = ()
    """The statuses of errors, beside those of all with such a path or body."""
    is_open: bool = False
    """True when nobody is asked who they are."""


def answer_ok(kind: type) -> Answers:
    """Return the answers of an operation that shows something."""
    return ((200, "OK", kind),)


def document(operations: Iterable[Operation], agents: Mapping[str, Agent[Any, Any, Any]], n_bytes: int) -> Schema:
    """Return the document. Bodies have `n_bytes` at most."""
    schemas, paths = _schemas_of_classes(operations), dict[str, Schema]()
    for each in [each for each in operations if each.summary]:
        for name, agent in agents.items() if "{agent}" in each.path else [("", None)]:
            told = {} if agent is None else {"description": agent.description}
            described = told | _describe_operation(each, name, _body_schema(each, schemas, agent))
            paths.setdefault(each.path.replace("{agent}", name), {})[each.method.lower()] = described
    for name, agent in agents.items():
        described = documents.WORDS if agent.input is str else agent.plan.input.describe(_place(name))
        schemas[f"{name}.input"] = described
    description = f"Bodies have {n_bytes:,} bytes at most."
    info = {"title": "Agents", "version": package_version(), "description": description}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _describe_operation(operation: Operation, agent: str, body: Schema | None) -> Schema:
    in_path = [_IN_PATH[name] for name in re.findall(r"\{(\w+)\}", operation.path) if name in _IN_PATH]
    described: Schema = {"summary": operation.summary.format(agent=agent)}
    described["parameters"] = [*in_path, *operation.parameters]
    errors = {*operation.errors, 500, *(() if operation.is_open else (401,)), *((404,) if in_path else ())}
    if body is not None:
        errors |= _REFUSED
        described["requestBody"] = {"required": operation.bodies != (documents.StopBody,), "content": _json(body)}
    answers = {str(each): _answer(_ERRORS[each], documents.ErrorDocument) for each in sorted(errors)}
    answers |= {str(status): _answer(*answer) for status, *answer in operation.answers}
    if operation.answers is ENDED:  # what an agent's own input check refuses is a result, too
        answers["422"]["content"] = _json({"anyOf": [_ref(documents.ErrorDocument), _ref(documents.ResultDocument)]})
    return {**described, "responses": answers}


def _body_schema(operation: Operation, schemas: Schema, agent: Agent[Any, Any, Any] | None) -> Schema | None:
    """Return the schema of a body; of one with the input of an agent, for this one."""
    refs = [_ref(kind) for kind in operation.bodies]
    if agent is None:
        return {"oneOf": refs} if len(refs) > 1 else refs[0] if refs else None
    (kind,) = operation.bodies
    schema, given = schemas[kind.__name__], {"input": {"$ref": _place(agent.name)}}
    if kind is documents.RunBody:
        return {**schema, "properties": given}
    if agent.input is str:
        return schema
    forwarded = {"forwardedProps": {"type": "object", "required": ["input"], "properties": given}}
    required = [*schema["required"], *forwarded]
    return {**schema, "required": required, "properties": schema["properties"] | forwarded}


def _answer(description: str, *kinds: type) -> Schema:
    content: Schema = {}
    for kind in kinds:
        content |= {"text/event-stream": {}} if kind is bytes else _json(_ref(kind))
    return {"description": description, "content": content}


def _json(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}


def _ref(kind: type) -> Schema:
    return {"$ref": _REF.format(model=kind.__name__.removesuffix("Document"))}


_REF: Final = "#/components/schemas/{model}"


class _Describing(GenerateJsonSchema):
    """Writes no titles, which would only repeat the names of classes and fields."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False

    def normalize_name(self, name: str) -> str:
        return super().normalize_name(name).removesuffix("Document")


def _schemas_of_classes(operations: Iterable[Operation]) -> Schema:
    """Return the schemas of all bodies and answers, by their names."""
    bodies = {kind: None for each in operations for kind in each.bodies}
    answers = {kind: None for each in operations for _, _, *kinds in each.answers for kind in kinds}
    kinds = [kind for kind in {**bodies, **answers, documents.ErrorDocument: None} if kind is not bytes]
    adapters: list[tuple[Any, JsonSchemaMode, TypeAdapter[Any]]]
    adapters = [(kind, "validation", TypeAdapter(kind)) for kind in kinds]
    _, found = TypeAdapter.json_schemas(adapters, ref_template=_REF, schema_generator=_Describing)
    schemas: Schema = found["$defs"]
    for schema in schemas.values():
        schema.pop("title", None)
    for kind in [kind for kind in bodies if is_dataclass(kind)]:
        schemas[kind.__name__]["additionalProperties"] = False
    for kind, word in DECISION_WORDS.items():
        schema = schemas[kind.__name__]
        schema["properties"] = {"decision": {"const": word}, **schema["properties"]}
        schema["required"] = ["decision", *schema.get("required", ())]
    return schemas


def _place(name: str) -> str:
    """Return where the schema of an agent's input stands in the document."""
    return _REF.format(model=f"{name}.input")
