"""Reads tools that are described as other APIs describe them: OpenAI's two, Anthropic's, Gemini's and MCP's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import as_object, is_str_dict
from journeyman.errors import DefinitionError, Problem
from journeyman.types import Effect, JsonObject

_SCHEMAS: Final = ("parameters", "input_schema", "inputSchema", "parametersJsonSchema")
_READ: Final = frozenset({*_SCHEMAS, "type", "name", "description", "strict", "title", "annotations"})
_ANNOTATIONS: Final = frozenset({"title", "readOnlyHint", "idempotentHint", "destructiveHint", "openWorldHint"})
_ADVICE: Final = {
    "cache_control": "Leave it out: ModelSettings(cache=…) sets the marks.",
    "defer_loading": "Leave it out, and give the tool to journeyman.toolbox.deferred_tools(…).",
    "outputSchema": "Leave it out: the model reads what the handler returns.",
}
_NO_ARGUMENTS: Final[JsonObject] = {"type": "object", "properties": {}}
_FORMS: Final = (
    "Give a tool as OpenAI, Anthropic, Gemini or MCP describe it: its name, its description and the JSON Schema of its"
    " arguments."
)


@lazy_dataclass(frozen=True, kw_only=True)
class ToolDescription:
    """The parts of a tool that a dict describes."""

    name: str
    description: str
    schema: JsonObject
    strict: bool
    effect: Effect | None


def read_tool_dict(given: object) -> ToolDescription:
    """Return what a dict says of a tool.

    Raises:
        DefinitionError: it is no such dict, or says what a tool cannot carry; lists every problem.
    """
    inner: object = given
    if is_str_dict(given) and given.get("type") == "function" and is_str_dict(given.get("function")):
        inner = given["function"]
    problems = [*_problems(inner)]
    if problems or not is_str_dict(inner):
        raise DefinitionError("Tool.from_dict", problems)
    hints = as_object(inner.get("annotations"))
    return ToolDescription(
        name=str(inner["name"]),
        description=str(inner.get("description") or inner.get("title") or ""),
        schema=next((as_object(inner[key]) for key in _SCHEMAS if inner.get(key) is not None), {**_NO_ARGUMENTS}),
        strict=inner.get("strict") is True,
        effect="pure" if hints.get("readOnlyHint") else "idempotent" if hints.get("idempotentHint") else None,
    )


def _problems(given: object) -> Iterator[Problem]:
    if not is_str_dict(given):
        yield Problem("INVALID_TOOL_DICT", f"It is {given!r}.", _FORMS)
        return
    kind = given.get("type", "function")
    if kind not in ("function", "custom"):
        hint = "What a provider runs itself is asked for with ModelSettings(hosted=…)."
        yield Problem("INVALID_TOOL_DICT", f"Its type is {kind!r}, which no function of yours does.", hint)
    elif not isinstance(given.get("name"), str):
        yield Problem("INVALID_TOOL_DICT", f"Its name is {given.get('name')!r}.", _FORMS)
    schemas = [key for key in _SCHEMAS if given.get(key) is not None]
    if len(schemas) > 1:
        yield Problem("INVALID_TOOL_DICT", f"It has two schemas, {' and '.join(schemas)}.", "Leave one of them.")
    yield from (
        Problem("INVALID_TOOL_DICT", f"{key} is {given[key]!r}, not a JSON Schema.", _FORMS)
        for key in schemas
        if not is_str_dict(given[key])
    )
    hints = given.get("annotations")
    strange = [f"annotations.{key}" for key in hints if key not in _ANNOTATIONS] if is_str_dict(hints) else []
    for key in [*(key for key in given if key not in _READ), *strange]:
        hint = _ADVICE.get(key, "Leave it out.")
        yield Problem("INVALID_TOOL_DICT", f"A tool cannot carry its {key}.", hint)
