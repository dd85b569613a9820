"""The chat template for small models of ChatML, such as SmolLM2: with tools, which their own has not.

A small model learns from examples how a call is written, and takes names and values from them. So the examples are made
from the tools of the request, and what the user says in them holds just the values of the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from typing import Final

from pydantic import JsonValue

from journeyman.model import ToolSpec
from journeyman.models.wire import to_json
from journeyman.narrowing import as_list, as_object
from journeyman.types import JsonObject

EXAMPLES: Final = "examples"
"""The name by which the template is given the examples."""
_LEAST_EXAMPLES: Final = 2
_MOST_EXAMPLES: Final = 4
_DEEPEST: Final = 4
_MOST_PROPERTIES: Final = 8
_WORDS: Final = ("blue", "seven trees", "Lima", "a small boat")
_NUMBERS: Final = (3, 8, 12, 5)

TEMPLATE: Final = """\
{%- macro say(role, text) %}{{ '<|im_start|>' + role + '\\n' + text + '<|im_end|>\\n' }}{% endmacro -%}
{%- macro calls_of(message) %}
    {%- for each in message.tool_calls %}
        {%- set one = each.function if each.function is defined else each %}
        {{- '<tool_call>\\n{"name": "' + one.name + '", "arguments": ' }}
        {{- one.arguments | tojson }}{{ '}\\n</tool_call>' }}
        {{- '' if loop.last else '\\n' }}
    {%- endfor %}
{%- endmacro -%}
{%- set first = messages[0] %}
{%- set system = first.content if first.role == 'system' else 'You are a helpful assistant.' %}
{%- if tools %}
    {%- set listed %}{% for tool in tools %}{{ '\\n' }}{{ tool.function | tojson }}{% endfor %}{% endset %}
    {{- say('system', system + '\\n\\nYou have these functions:' + listed + '\\n\\nTo call one, write:\\n<tool_call>\\n'
        + '{"name": "NAME", "arguments": {ARGUMENTS}}\\n</tool_call>') }}
    {%- for example in examples or [] %}
        {{- say('user', example.said) }}
        {{- say('assistant', '<tool_call>\\n' + example.call + '\\n</tool_call>') }}
    {%- endfor %}
{%- else %}
    {{- say('system', system) }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'assistant' and message.tool_calls %}
        {{- say('assistant', (message.content + '\\n' if message.content else '') + calls_of(message)) }}
    {%- elif message.role == 'tool' %}
        {{- say('user', message.content) }}
    {%- elif message.role != 'system' or not loop.first %}
        {{- say(message.role, message.content or '') }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}
"""


def examples_of(tools: Sequence[ToolSpec]) -> list[JsonValue]:
    """Return what a user says, and the call that answers it, for the first four tools; twice for the only one."""
    n_examples = min(max(len(tools), _LEAST_EXAMPLES), _MOST_EXAMPLES) if tools else 0
    examples: list[JsonValue] = []
    for position, tool in enumerate(islice(cycle(tools), n_examples)):
        arguments = as_object(_Sample(tool.input_schema, position).value(tool.input_schema, 0))
        words = {
            name: value if isinstance(value, str) else to_json(value).decode() for name, value in arguments.items()
        }
        asked = tool.description.partition("\n")[0].strip().rstrip(".") or tool.name
        said = f"{asked}. {', '.join([f'{name}: {word}' for name, word in words.items()])}".strip()
        examples.append({"said": said, "call": to_json({"name": tool.name, "arguments": arguments}).decode()})
    return examples


class _Sample:
    """Values that fit a schema as far as its types go; others with each example."""

    def __init__(self, schema: JsonObject, position: int) -> None:
        self._schema = schema
        self._position = position
        self._n_made = 0

    def value(self, schema: JsonObject, depth: int) -> JsonValue:
        """Return a value for a part of the schema; None below a depth at which nobody reads an example."""
        if depth > _DEEPEST:
            return None
        for name in ("enum", "examples"):
            if given := as_list(schema.get(name)):
                return given[self._position % len(given)]
        if "const" in schema:
            return schema["const"]
        inner = self._inner(schema)
        return self._of_type(schema, depth) if inner is None else self.value(inner, depth + 1)

    def _inner(self, schema: JsonObject) -> JsonObject | None:
        """Return the schema that stands for this one: what it refers to, or its first choice that is not null."""
        if isinstance(to := schema.get("$ref"), str):
            found = self._schema
            for step in to.removeprefix("#/").split("/"):
                found = as_object(found.get(step))
            return found
        for name in ("anyOf", "oneOf", "allOf"):
            if choices := [as_object(each) for each in as_list(schema.get(name))]:
                return next((each for each in choices if each.get("type") != "null"), choices[0])
        return None

    def _of_type(self, schema: JsonObject, depth: int) -> JsonValue:
        kind = schema.get("type")
        match next((each for each in as_list(kind) if each != "null"), kind):
            case "object":
                # What a call must have; if it must have nothing, the first property.
                properties = as_object(schema.get("properties"))
                needed = [name for name in properties if name in as_list(schema.get("required"))] or [*properties][:1]
                return {name: self.value(as_object(properties[name]), depth + 1) for name in needed[:_MOST_PROPERTIES]}
            case "array":
                return [self.value(as_object(schema.get("items")), depth + 1)]
            case "integer" | "number":
                return self._next(_NUMBERS)
            case "boolean":
                return self._position % 2 == 0
            case "null":
                return None
            case _:
                return self._next(_WORDS)

    def _next(self, values: Sequence[str | int]) -> JsonValue:
        self._n_made += 1
        return values[(self._position * 2 + self._n_made - 1) % len(values)]
