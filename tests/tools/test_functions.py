"""Tools: from a function to what the model is told, and back to a call of the function."""

import asyncio
import json
import subprocess
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial, wraps
from types import FunctionType
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, assert_type, cast

import pytest
from pydantic import BaseModel, Field

from journeyman.errors import DefinitionError, InvalidArguments
from journeyman.model import ToolSpec
from journeyman.tools.tools import AnyTool, Tool, ToolContext, tool, tool_problems
from journeyman.types import JsonObject
from tests.tools.contexts import context_for

P = ParamSpec("P")
R = TypeVar("R")


class Filter(BaseModel):
    column: str
    values: list[int] = []


@tool(parallel=True)
async def query(sql: str, limit: int = 10) -> list[str]:
    """Run one read-only SQL query.

    The result has at most `limit` rows.

    Args:
        sql: a single SELECT statement,
            without a semicolon.
        limit: the most rows to return.

    Returns:
        The rows.
    """
    return [sql] * limit


@tool
def add(a: int, b: int = 1) -> int:
    return a + b


def call(tool: AnyTool, input_json: str) -> object:
    """Do what the loop does, without any of its care."""
    return tool.invoke(tool.parse(input_json), context_for(tool))


def defined(source: str) -> Callable[..., object]:
    """Define a function that no type checker would let pass, in a module of its own."""
    names: dict[str, Any] = {"ToolContext": ToolContext, "Popen": subprocess.Popen}
    exec(f"from __future__ import annotations\nfrom typing import Callable\n{source}", names)
    return names["it"]


def problems_of(define: Callable[[], object]) -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        define()
    assert all(problem.message and problem.hint for problem in caught.value.problems)
    return [problem.code for problem in caught.value.problems]


# R18, X7, D26
def test_a_function_tells_its_name_its_description_and_its_parameters() -> None:
    assert query.spec == ToolSpec(
        name="query",
        description=("Run one read-only SQL query.\n\nThe result has at most `limit` rows.\n\nReturns:\n    The rows."),
        input_schema={
            "type": "object",
            "properties": {
                "sql": {"type": "string", "description": "a single SELECT statement, without a semicolon."},
                "limit": {"type": "integer", "default": 10, "description": "the most rows to return."},
            },
            "required": ["sql"],
            "additionalProperties": False,
        },
    )
    assert query.spec is query.spec


def test_a_function_without_a_docstring_or_parameters_is_a_tool() -> None:
    @tool
    def ping() -> str:
        return "pong"

    closed: JsonObject = {"type": "object", "additionalProperties": False}
    numbers: JsonObject = {"a": {"type": "integer"}, "b": {"type": "integer", "default": 1}}
    schema: JsonObject = {**closed, "properties": numbers, "required": ["a"]}
    assert add.spec == ToolSpec(name="add", description="", input_schema=schema)
    assert (ping.input_schema, call(ping, "{}")) == ({**closed, "properties": {}}, "pong")


def test_name_and_description_can_be_given() -> None:
    @tool(name="sum", description="Add two numbers.", strict=True)
    def plus(a: int, b: int) -> int:
        """Overruled."""
        return a + b

    assert (plus.spec.name, plus.spec.description, plus.spec.strict) == ("sum", "Add two numbers.", True)


def test_definitions_of_nested_types_come_along() -> None:
    @tool
    def select(filters: list[Filter], mode: Literal["all", "any"] = "all") -> int:
        return len(filters)

    assert select.input_schema["properties"] == {
        "filters": {"type": "array", "items": {"$ref": "#/$defs/Filter"}},
        "mode": {"type": "string", "enum": ["all", "any"], "default": "all"},
    }
    assert list(cast("dict[str, object]", select.input_schema["$defs"])) == ["Filter"]
    assert select.parse('{"filters": [{"column": "a"}]}') == {"filters": [Filter(column="a")], "mode": "all"}


def test_a_description_in_the_annotation_wins_over_the_docstring() -> None:
    @tool
    def pay(amount: Annotated[int, Field(description="in cents", gt=0)]) -> None:
        """Pay.

        :param amount: how much
        """

    assert pay.input_schema["properties"] == {
        "amount": {"type": "integer", "description": "in cents", "exclusiveMinimum": 0}
    }
    assert pay.description == "Pay."


class Counter:
    """Counts up."""

    def __init__(self) -> None:
        self.total = 0

    def __call__(self, by: int) -> int:
        self.total += by
        return self.total

    def reset(self, to: int = 0) -> int:
        """Start again."""
        self.total = to
        return to

    @staticmethod
    def doubled(number: int) -> int:
        return 2 * number

    @classmethod
    def created(cls, total: int) -> int:
        return total


def logged(function: Callable[P, R]) -> Callable[P, R]:
    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    return wrapper


@logged
def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


def search(client: str, term: str, limit: int = 5) -> str:
    """Search.

    Args:
        term: what to look for.
    """
    return f"{client}:{term}:{limit}"


shout_tool = tool(shout, name="say_loudly")


@pytest.mark.parametrize(
    ("made", "name", "description", "input_json", "result"),
    [
        (tool(Counter()), "Counter", "Counts up.", '{"by": 2}', 2),
        (tool(Counter().reset), "reset", "Start again.", '{"to": 3}', 3),
        (tool(Counter.doubled), "doubled", "", '{"number": 2}', 4),
        (tool(Counter.created), "created", "", '{"total": 2}', 2),
        (tool(shout), "shout", "Say it loudly.", '{"text": "a"}', "A"),
        (tool(partial(search, "bing")), "search", "Search.", '{"term": "x"}', "bing:x:5"),
        (tool(partial(partial(search, "bing"), term="y")), "search", "Search.", "{}", "bing:y:5"),
        (tool(partial(search, limit=9)), "search", "Search.", '{"client": "c", "term": "x"}', "c:x:9"),
    ],
)
def test_methods_partials_wrappers_and_callables_are_tools(
    made: AnyTool, name: str, description: str, input_json: str, result: object
) -> None:
    assert (made.name, made.description) == (name, description)
    assert call(made, input_json) == result


def test_what_a_partial_binds_by_name_is_hidden_from_the_model() -> None:
    hidden = tool(partial(search, client="secret"))
    assert "secret" not in str(hidden.spec)
    assert list(cast("dict[str, object]", hidden.input_schema["properties"])) == ["term", "limit"]
    with pytest.raises(InvalidArguments):
        hidden.parse('{"term": "x", "client": "other"}')


def test_a_lambda_needs_a_name() -> None:
    assert problems_of(lambda: tool(lambda: 1)) == ["MISSING_TOOL_NAME"]
    assert call(tool(lambda: 1, name="one"), "{}") == 1


# A17
async def test_a_sync_and_an_async_function_differ_in_what_invoke_returns() -> None:
    assert call(add, '{"a": 1}') == 2
    returned = call(query, '{"sql": "x", "limit": 1}')
    assert asyncio.iscoroutine(returned)
    assert await returned == ["x"]


# A17
def test_a_tool_runs_in_a_thread_unless_it_is_async_or_says_otherwise() -> None:
    async def fetch(url: str) -> str:
        return url

    class Fetcher:
        async def __call__(self, url: str) -> str:
            return url

    def hidden(url: str) -> Coroutine[Any, Any, str]:
        return fetch(url)

    @wraps(fetch)
    def fetched(url: str) -> str:
        return asyncio.run(fetch(url))  # in the loop's own thread it could not

    async_tools: list[AnyTool] = [query, tool(partial(fetch)), tool(Fetcher())]
    assert [made.in_thread for made in async_tools] == [False] * 3
    assert tool(fetched).in_thread
    sync_tools: list[AnyTool] = [add, tool(hidden), tool(Counter().reset), tool(shout)]
    assert [made.in_thread for made in sync_tools] == [True] * 4
    assert not tool(hidden, thread=False).in_thread


async def test_a_decorated_tool_is_still_the_function_with_its_types() -> None:
    assert add(2, b=3) == 5
    assert_type(await query("x", limit=2), list[str])
    assert await query("x", limit=2) == ["x", "x"]
    assert_type(add(1), int)
    assert_type(shout_tool("x"), str)
    some: AnyTool = add
    more: list[AnyTool] = [query, add]
    assert some in more


def test_the_context_is_given_and_hidden_whatever_its_parameter_is_called() -> None:
    @tool
    def first(run: ToolContext, text: str) -> str:
        return f"{run.agent} {text}"

    @tool
    def last(text: str, *, it: ToolContext | None = None) -> str:
        assert it is not None
        return f"{it.tool_name} {text}"

    @tool
    def noted(text: str, it: Annotated[ToolContext, "a note"]) -> str:
        return f"{it.iteration} {text}"

    for made, expected in ((first, "lead x"), (last, "last x"), (noted, "3 x")):
        assert made.input_schema["required"] == ["text"]
        assert list(cast("dict[str, object]", made.input_schema["properties"])) == ["text"]
        assert call(made, '{"text": "x"}') == expected
    assert last("x", it=context_for(last)) == "last x"


def test_the_context_is_found_by_its_name_where_it_is_only_imported_for_type_checking() -> None:
    greet = defined("def it(text: str, context: ToolContext): return f'{context.agent}: {text}'")
    del cast("FunctionType", greet).__globals__["ToolContext"]
    assert call(tool(greet), '{"text": "x"}') == "lead: x"


def test_a_parameter_may_have_any_name_that_python_takes() -> None:  # A36
    names = ["copy", "json", "schema", "model_dump", "validate", "self_", "function", "context", "value", "items"]
    made = tool(defined(f"def it({', '.join(f'{name}: int' for name in names)}): return locals()"))
    arguments = {name: number for number, name in enumerate(names)}
    assert call(made, json.dumps(arguments)) == arguments


def test_types_of_the_function_around_are_found() -> None:
    class Local(BaseModel):
        size: int

    def make() -> Tool[[Local, list[Local] | None], int]:
        @tool
        def measure(one: Local, more: list[Local] | None = None) -> int:
            return one.size

        return measure

    assert call(make(), '{"one": {"size": 3}}') == 3


# D44: all of them, at once, each with a hint
@pytest.mark.parametrize("none", [0, "3", True])
def test_a_definition_lists_everything_that_is_wrong(none: object) -> None:
    worst = defined("def it(a, b, /, c: Missing, *d: int, e: ToolContext, f: ToolContext, **g: str): ...")
    wrong: Any = {"name": "not a name", "cache": "run", "effect": "some", "timeout_s": none, "max_chars": none}
    assert problems_of(lambda: tool(worst, **wrong)) == [
        *("UNSUPPORTED_PARAMETER", "UNSUPPORTED_PARAMETER", "UNRESOLVED_ANNOTATION", "UNSUPPORTED_PARAMETER"),
        *("DUPLICATE_CONTEXT", "UNSUPPORTED_PARAMETER", "INVALID_TOOL_NAME", "INVALID_EFFECT"),
        *("CACHE_NEEDS_PURE", "INVALID_TIMEOUT", "INVALID_MAX_CHARS"),
    ]


def test_a_parameter_needs_a_name_and_a_type_that_can_be_found_and_described() -> None:
    worst = defined("def it(a, b: Missing, c: list[Missing.Too], d: Callable[[], int], e: Popen, f: 'int ('): ...")
    assert problems_of(lambda: tool(worst)) == [
        *("MISSING_ANNOTATION", "UNRESOLVED_ANNOTATION", "UNRESOLVED_ANNOTATION"),
        *("UNRESOLVED_ANNOTATION", "UNSUPPORTED_TYPE", "UNSUPPORTED_TYPE"),
    ]
    with pytest.raises(DefinitionError, match=r"bind it first: tool\(instance\.method\)"):
        tool(Counter.reset)
    with pytest.raises(DefinitionError, match=r"Tool has no 'paralell'\. Did you mean 'parallel'"):
        tool(add.handler, **cast("Any", {"paralell": True}))


# R75
def test_only_the_results_of_a_pure_tool_are_cached() -> None:
    @tool(effect="pure", cache="attempt")
    def now() -> int:
        return 1

    assert now.cache == "attempt"
    assert problems_of(lambda: tool(now.handler, cache="attempt")) == ["CACHE_NEEDS_PURE"]
    for effect in ("idempotent", "once"):
        assert problems_of(lambda effect=effect: tool(now.handler, cache="run", effect=effect)) == ["CACHE_NEEDS_PURE"]
    assert problems_of(lambda: tool(now.handler, cache=cast("Any", True), effect="pure")) == ["INVALID_CACHE"]


def test_a_timeout_is_a_time_and_async_functions_do_not_run_in_threads() -> None:
    for seconds in (0, -1, float("nan"), float("inf")):
        assert problems_of(lambda seconds=seconds: tool(add.handler, timeout_s=seconds)) == ["INVALID_TIMEOUT"]
    assert problems_of(lambda: tool(query.handler, thread=True)) == ["THREADED_COROUTINE"]


@pytest.mark.parametrize("thing", [3, "text", object(), print, len, super])
def test_what_is_no_function_with_typed_parameters_is_no_tool(thing: object) -> None:
    assert problems_of(lambda: tool(cast("Callable[..., object]", thing))) != []


# D33: nothing but the name identifies a tool
def test_a_right_tool_has_no_problems_and_can_be_renamed_and_told_apart() -> None:
    assert tool_problems(query) == tool_problems(add) == []
    renamed = replace(query, name="ask")
    assert (renamed.spec.name, renamed.spec.input_schema) == ("ask", query.spec.input_schema)
    with pytest.raises(InvalidArguments, match="tool 'ask'"):
        renamed.parse("{}")
    assert add != replace(add)
    assert len({add, query, add}) == 2


# A36, R20
def test_arguments_come_out_as_values_of_their_types() -> None:
    @dataclass
    class Window:
        start: int
        end: int | None = None

    @tool
    def cut(window: Window, tags: set[str], ratio: float = 0.5) -> None: ...

    parsed = cut.parse('{"window": {"start": 1}, "tags": ["a", "a"]}')
    assert parsed == {"window": Window(1), "tags": {"a"}, "ratio": 0.5}


# A36, D43
def test_arguments_that_do_not_fit_name_the_tool_and_list_every_issue() -> None:
    with pytest.raises(InvalidArguments) as caught:
        query.parse('{"limit": "many", "offset": 3}')
    issues = ("sql: is required", 'limit: should be a valid integer, got "many"', "offset: is not a known name")
    assert caught.value.issues == issues
    assert str(caught.value) == "\n- ".join(["Invalid arguments for tool 'query':", *issues])


# R75
def test_equal_arguments_have_one_cache_key_and_others_have_another() -> None:
    def key(input_json: str) -> str:
        return query.cache_key(query.parse(input_json))

    assert key('{"sql": "x"}') == 'query:{"limit":10,"sql":"x"}'
    assert key('{"sql": "x"}') == key('{"limit": 10, "sql": "x"}') == key('{"sql":"\\u0078", "limit":"10"}')
    assert len({key('{"sql": "x"}'), key('{"sql": "y"}'), key('{"sql": "x", "limit": 1}')}) == 3


@pytest.mark.parametrize("kind", [float, Annotated[float, Field(ge=0)], float | None])
def test_a_default_has_the_same_cache_key_as_what_is_written_for_it(kind: Any) -> None:  # noqa: ANN401 - any type
    async def wait(at: object = 0) -> None: ...

    wait.__annotations__["at"] = kind
    made = tool(wait, name="wait")
    assert {made.cache_key(made.parse(text)) for text in ("{}", '{"at": 0}', '{"at": 0.0}')} == {'wait:{"at":0.0}'}
