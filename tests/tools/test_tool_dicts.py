"""Tools that are described as other APIs describe them."""

from typing import Any

import pytest

from journeyman import Agent, DefinitionError, Tool, ToolContext, run
from journeyman.testing import ScriptedModel, call
from tests.play import succeeded, texts

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ABOUT = {"name": "weather", "description": "Look at the sky."}
FORMS: dict[str, dict[str, Any]] = {
    "chat completions": {"type": "function", "function": {**ABOUT, "parameters": SCHEMA, "strict": False}},
    "responses": {"type": "function", **ABOUT, "parameters": SCHEMA},
    "anthropic": {**ABOUT, "input_schema": SCHEMA},
    "anthropic custom": {"type": "custom", **ABOUT, "input_schema": SCHEMA},
    "gemini": {**ABOUT, "parametersJsonSchema": SCHEMA},
    "mcp": {**ABOUT, "inputSchema": SCHEMA, "title": "Weather", "annotations": {"openWorldHint": True}},
}


def by_name(city: str) -> str:
    return f"clouds over {city}"


async def as_dict(arguments: dict[str, str]) -> str:
    return f"clouds over {arguments['city']}"


async def with_context(ctx: ToolContext, city: str, *, unit: str = "C") -> str:
    return f"{ctx.agent}: clouds over {city}, {unit}"


@pytest.mark.parametrize("handler", [by_name, as_dict, with_context])
@pytest.mark.parametrize("form", FORMS)
async def test_a_tool_of_any_form_is_called_and_checked(form: str, handler: Any) -> None:  # noqa: ANN401 - any of these
    tool = Tool.from_dict(FORMS[form], handler)
    assert (tool.name, tool.description, tool.input_schema, tool.effect) == (*ABOUT.values(), SCHEMA, None)
    model = ScriptedModel([[call("weather", city="Oslo"), call("weather", city=5)], "Done."])
    good, bad = texts(succeeded(await run(Agent(name="a", model=model, tools=[tool]), "Go.")))
    assert "clouds over Oslo" in good
    assert "city" in bad
    assert "clouds" not in bad


@pytest.mark.parametrize(
    ("hints", "options", "effect"),
    [
        ({"readOnlyHint": True}, {}, "pure"),
        ({"idempotentHint": True, "readOnlyHint": False}, {}, "idempotent"),
        ({"readOnlyHint": True}, {"effect": "once"}, "once"),
    ],
)
def test_hints_are_the_effect_unless_one_is_given(hints: dict[str, bool], options: Any, effect: str) -> None:  # noqa: ANN401
    assert Tool.from_dict({**ABOUT, "inputSchema": SCHEMA, "annotations": hints}, by_name, **options).effect == effect


WRONG: list[tuple[Any, str]] = [
    (["weather"], r"It is \['weather'\]"),
    ({"type": "web_search_20250305", "name": "web_search"}, "Its type is 'web_search_20250305'.*hosted"),
    ({"description": "nameless"}, "Its name is None"),
    ({**ABOUT, "parameters": SCHEMA, "inputSchema": SCHEMA}, "two schemas, parameters and inputSchema"),
    ({**ABOUT, "parameters": "city"}, "parameters is 'city', not a JSON Schema"),
    ({**FORMS["anthropic"], "cache_control": {}}, r"cannot carry its cache_control\. .*ModelSettings"),
    ({**FORMS["mcp"], "annotations": {"odd": 1}, "_meta": {}}, r"(?s)its _meta.*its annotations\.odd"),
]


@pytest.mark.parametrize(("wrong", "told"), WRONG)
def test_what_a_tool_cannot_carry_is_refused_by_name(wrong: Any, told: str) -> None:  # noqa: ANN401 - users' data
    with pytest.raises(DefinitionError, match=told):
        Tool.from_dict(wrong, by_name)


async def test_a_tool_without_a_schema_takes_nothing() -> None:
    def ring(arguments: dict[str, object]) -> str:
        return f"rang {arguments}"

    model, tool = ScriptedModel([call("ring"), "Done."]), Tool.from_dict({"name": "ring"}, ring)
    assert texts(succeeded(await run(Agent(name="a", model=model, tools=[tool]), "Go."))) == ["rang {}"]
