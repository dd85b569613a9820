"""Definitions that cannot work: refused at once, with everything that is wrong, and nothing of the caller's changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from journeyman import (
    Agent,
    Allowance,
    DefinitionError,
    Limits,
    Output,
    Reflection,
    Settings,
    Submit,
    Text,
    Tool,
    run,
    tool,
)
from journeyman.models.scripted import Scripted
from journeyman.types import JsonObject
from tests.loop.pitfalls.players import Report, look, shown, small
from tests.support.stage import Stage

MODEL = Scripted(["Done."])
NAN, INF = float("nan"), float("inf")
NO_FUNCTION: Any = "show"


def defined(**options: Any) -> Agent[Any, Any]:  # noqa: ANN401 - of any type, also a wrong one
    given: dict[str, Any] = {"name": "a", "model": MODEL, **options}
    return Agent[Any, Any](**given)


def problems(make: Callable[[], object]) -> list[str]:
    with pytest.raises(DefinitionError) as raised:
        make()
    assert all(problem.message and problem.hint for problem in raised.value.problems)
    return [problem.code for problem in raised.value.problems]


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("INVALID_NAME", {"name": ""}),
    ("INVALID_NAME", {"name": "  "}),
    ("INVALID_NAME", {"name": "two words"}),
    ("INVALID_NAME", {"name": "x" * 65}),
    ("INVALID_NAME", {"name": "end\n"}),
    ("INVALID_NAME", {"name": None}),
    ("INVALID_MODEL_NAME", {"model": ""}),
    ("INVALID_MODEL_NAME", {"model": "claude"}),
    ("INVALID_MODEL", {"model": None}),
    ("INVALID_MODEL", {"model": 5}),
    ("INVALID_PROMPT", {"error_prompt": None}),
    ("INVALID_PROMPT", {"error_prompt": "Again."}),
    ("EMPTY_PROMPT", {"prompt": " "}),
    ("EMPTY_PROMPT", {"system": "\n"}),
    ("INVALID_TOOL", {"tools": [small]}),
    ("INVALID_TOOL", {"tools": {"look": look}}),
    ("INVALID_TOOL", {"tools": "look"}),
    ("DUPLICATE_TOOL_NAME", {"tools": [look, look]}),
    ("INVALID_VALIDATOR", {"validators": ["small"]}),
    ("INVALID_RETRIES", {"retries": -1}),
    ("INVALID_RETRIES", {"retries": True}),
    ("INVALID_RETRIES", {"retries": 1.0}),
    ("INVALID_NUDGE", {"nudge": True}),
    ("TEXT_AGENT_ONLY", {"output": Output(Report), "stop_after": ["look"]}),
    ("INVALID_REFLECTION", {"output": Output(Report, reflection=Reflection(NO_FUNCTION))}),
    ("EMPTY_DESCRIPTION", {"output": Output(Report, reflection=Reflection(shown, submit=Submit(description=" ")))}),
    *[("INVALID_MAX_ATTEMPTS", {"limits": Limits(attempts=value)}) for value in (0, -1, True, NAN, 1.5, "3", None)],  # pyright: ignore[reportArgumentType]
    *[("INVALID_MAX_ITERATIONS", {"limits": Limits(iterations=value)}) for value in (0, -1, False, NAN, INF, 2.0, "3")],  # pyright: ignore[reportArgumentType]
    *[("INVALID_LIMIT", {"limits": Limits(tokens=value)}) for value in (0, -1, True, NAN, 1e6, "all")],  # pyright: ignore[reportArgumentType]
    *[("INVALID_LIMIT", {"limits": Limits(seconds=value)}) for value in (0, -1, True, NAN, INF, "all")],  # pyright: ignore[reportArgumentType]
    *[("INVALID_LIMIT", {"limits": Limits(cost=value)}) for value in (0, -0.1, NAN, INF)],
    *[("INVALID_LIMIT", {"limits": Limits(calls=value)}) for value in (0, -1, 1.5, NAN)],  # pyright: ignore[reportArgumentType]
    ("INVALID_LIMIT", {"limits": Limits(each_attempt=Allowance(tokens=0))}),
    ("INVALID_LIMIT", {"limits": Limits(each_attempt=Allowance(seconds=NAN))}),
    *[("INVALID_MAX_TOKENS", {"settings": Settings(max_tokens=value)}) for value in (0, -1, True, 1.5, NAN)],  # pyright: ignore[reportArgumentType]
]


@pytest.mark.parametrize(("code", "options"), WRONG, ids=[f"{number} {code}" for number, (code, _) in enumerate(WRONG)])
def test_a_setting_that_cannot_work_is_refused_at_definition(code: str, options: dict[str, Any]) -> None:  # D44
    assert code in problems(lambda: defined(**options))


SECTIONS = [
    *("limits", "settings", "output", "tools", "validators", "middlewares", "budget", "system", "prompt"),
    *("observability", "compaction", "stop_after", "metadata", "description", "error_prompt"),
]


@pytest.mark.parametrize("section", SECTIONS)
async def test_a_section_that_is_none_is_refused_as_a_definition_or_means_nothing(stage: Stage, section: str) -> None:
    # D44
    try:
        agent = defined(**{"model": stage.model(["Done."]), section: None})
    except DefinitionError:
        return
    assert (await run(agent, "Go.")).unwrap() == "Done."


def test_all_that_is_wrong_is_said_at_once() -> None:  # D44, X29
    found = problems(
        lambda: defined(
            name="two words",
            model="claude",
            system=[Text(" ")],
            tools=[look, look, "look"],
            limits=Limits(attempts=0, iterations=-1, tokens=0),
            retries=-1,
            settings=Settings(max_tokens=0),
        )
    )
    assert sorted(found) == sorted(
        [
            *("INVALID_NAME", "INVALID_MODEL_NAME", "EMPTY_PROMPT", "DUPLICATE_TOOL_NAME", "INVALID_TOOL"),
            *("INVALID_MAX_ATTEMPTS", "INVALID_MAX_ITERATIONS", "INVALID_LIMIT", "INVALID_RETRIES"),
            "INVALID_MAX_TOKENS",
        ]
    )


def raw(name: str = "raw", schema: object = None, handler: object = shown, **options: Any) -> Tool[..., object]:  # noqa: ANN401
    given: Any = ({"type": "object"} if schema is None else schema, handler)
    return Tool(name, "A tool.", *given, **options)


BAD_TOOLS: list[tuple[str, Callable[[], Tool[..., object]]]] = [
    ("MISSING_TOOL_NAME", lambda: raw(name="")),
    ("INVALID_TOOL_NAME", lambda: raw(name="two words")),
    ("INVALID_HANDLER", lambda: raw(handler=None)),
    ("INVALID_HANDLER", lambda: raw(handler="shown")),
    ("INVALID_INPUT_SCHEMA", lambda: raw(schema={})),
    ("INVALID_INPUT_SCHEMA", lambda: raw(schema={"type": "array"})),
    ("INVALID_INPUT_SCHEMA", lambda: raw(schema={"type": "object", "anyOf": []})),
    ("INVALID_INPUT_SCHEMA", lambda: raw(schema="object")),
    ("INVALID_PROPERTY_NAME", lambda: raw(schema={"type": "object", "properties": {"two words": {}}})),
    ("INVALID_TIMEOUT", lambda: raw(timeout_s=0)),
    ("INVALID_TIMEOUT", lambda: raw(timeout_s=NAN)),
    ("INVALID_TIMEOUT", lambda: raw(timeout_s=-1)),
    ("INVALID_MAX_CHARS", lambda: raw(max_chars=0)),
    ("INVALID_EFFECT", lambda: raw(effect="none")),
    ("INVALID_CACHE", lambda: raw(cache="forever", effect="pure")),
    ("CACHE_NEEDS_PURE", lambda: raw(cache="run", effect="once")),
]


@pytest.mark.parametrize(("code", "make"), BAD_TOOLS, ids=[f"{n} {code}" for n, (code, _) in enumerate(BAD_TOOLS)])
def test_a_tool_that_cannot_work_is_refused_with_the_agent_at_the_latest(
    code: str, make: Callable[[], Tool[..., object]]
) -> None:  # D44
    assert code in problems(lambda: defined(tools=[make()]))


def test_a_function_that_cannot_be_a_tool_is_refused_by_the_decorator() -> None:  # D44
    def useless(*rest: int, where: Callable[[], int], **options: object) -> None: ...

    assert problems(lambda: tool(useless)) == ["UNSUPPORTED_PARAMETER"] * 2 + ["UNSUPPORTED_TYPE"]


def test_a_definition_changes_nothing_of_what_it_was_given() -> None:  # D44
    tools: list[Tool[..., Any]] = [look]
    validators = [small]
    extra: JsonObject = {"metadata": {"user_id": "u"}}
    schema: JsonObject = {"type": "object", "properties": {"n": {"type": "integer"}}}
    before = repr((tools, validators, extra, schema))
    made = raw(schema=schema)
    defined(output=Output(Report), tools=tools, validators=validators, settings=Settings(extra=extra))
    defined(tools=[made])
    assert repr((tools, validators, extra, schema)) == before
    tools.append(made)
    schema["properties"] = {}


def test_a_definition_cannot_be_changed() -> None:  # D44
    agent = defined(tools=[look])
    for field, value in (("name", "b"), ("limits", Limits(attempts=0)), ("validators", [small])):
        with pytest.raises(FrozenInstanceError):
            setattr(agent, field, value)


async def test_what_was_never_defined_as_an_agent_cannot_run(stage: Stage) -> None:  # D44
    class Fake:
        name = "fake"
        limits = Limits(attempts=0)

    model = stage.model(["Never asked."])
    fake: Any = Fake()
    fake.model = model
    with pytest.raises((TypeError, AttributeError, DefinitionError)):
        await run(fake, "Go.")
    assert stage.n_requests == 0
