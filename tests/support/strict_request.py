"""What the strict servers share: a request as their rules see it, and the rules that differ only in names.

A rule yields one text for each fault, and its docstring names its source: P is the provider's documentation, # an issue
or pull request.
"""

import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import isfunction
from typing import ClassVar, TypeAlias, TypeVar

import jsonschema_rs

from tests.support.messages_json import Json, as_list, as_object, as_text


@dataclass(frozen=True, slots=True)
class Item:
    """One object in a request (a message, a part of content, a call, a tool), and where it stands."""

    where: str
    data: Json

    @property
    def type(self) -> str:
        return self.text("type")

    @property
    def role(self) -> str:
        return self.text("role")

    def text(self, key: str) -> str:
        """Return a string field, empty if it is missing."""
        return as_text(self.data.get(key))

    def under(self, key: str) -> "Item":
        """Return the object in a field."""
        return Item(f"{self.where}.{key}", as_object(self.data.get(key)))

    def each(self, key: str) -> list["Item"]:
        """Return the objects in a list."""
        return items_of(self.data.get(key), f"{self.where}.{key}")


def items_of(value: object, where: str) -> list[Item]:
    """Return the objects of a list; anything else has none."""
    return [Item(f"{where}.{index}", as_object(each)) for index, each in enumerate(as_list(value))]


@dataclass(frozen=True, slots=True)
class Exchange:
    """Calls of the model, and the results that follow them at once. Either may be missing."""

    where: str
    calls: Sequence[Item]
    results: Sequence[Item]


class StrictRequest:
    """A request of any API: what the shared rules read of it."""

    tool_name: ClassVar[re.Pattern[str]]
    schema_key: ClassVar[str] = "parameters"
    not_on_top: ClassVar[tuple[str, ...]]
    """What the schema of a tool may not have at its top."""
    call_key: str
    result_key: str
    """Where calls and results have the id that they share."""

    def __init__(self, body: Json, headers: Mapping[str, str]) -> None:
        self.body = body
        self.headers = {name.lower(): value for name, value in headers.items()}

    @cached_property
    def tools(self) -> list[Item]:
        """The functions that are offered, each with its name and schema."""
        raise NotImplementedError

    @cached_property
    def exchanges(self) -> Sequence[Exchange]:
        raise NotImplementedError

    @property
    def schemas(self) -> list[Item]:
        """The schemas of the tools that have one."""
        return [tool.under(self.schema_key) for tool in self.tools if tool.data.get(self.schema_key) is not None]


AnyRequest = TypeVar("AnyRequest", bound=StrictRequest)
Rule: TypeAlias = Callable[[AnyRequest], Iterator[str]]


def rules_of(module: Mapping[str, object], *, besides: Container[object] = ()) -> tuple[Rule[AnyRequest], ...]:
    """Return the rules that a module has defined so far, in order: its public functions of a `request` alone."""
    own = [each for each in module.values() if isfunction(each) and each.__module__ == module["__name__"]]
    rules = [each for each in own if [*each.__annotations__] == ["request", "return"] and each.__name__[0] != "_"]
    return tuple(rule for rule in rules if rule not in besides)


def broken_rules(rules: Sequence[Rule[AnyRequest]], request: AnyRequest) -> list[str]:
    """Return every violation in a request, each as `rule: text`."""
    return [f"{rule.__name__}: {text}" for rule in rules for text in rule(request)]


def api_key(headers: Mapping[str, str]) -> str:
    """Return the key of a request, empty if it has none; some services have a header of their own for it."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    own = [key for name in ("x-api-key", "api-key", "x-goog-api-key") if (key := headers.get(name, ""))]
    return own[0] if own else token.strip() if scheme.lower() == "bearer" else ""


def a_key_is_given(request: StrictRequest) -> Iterator[str]:
    """The key comes as a bearer token, or in a header of the provider's (P api/overview, P authentication)."""
    if not api_key(request.headers):
        yield "authorization: You didn't provide an API key"


def the_content_type_is_json(request: StrictRequest) -> Iterator[str]:
    """The header content-type is application/json (P api/overview, P api-reference)."""
    given = request.headers.get("content-type", "")
    if given.partition(";")[0].strip().lower() != "application/json":
        yield f"content-type: must be application/json, not {given!r}"


def tool_names_fit_the_pattern(request: StrictRequest) -> Iterator[str]:
    """Names of tools have few characters (P define-tools, P guides/function-calling, home-assistant/core#147760)."""
    for tool in request.tools:
        if not request.tool_name.match(tool.text("name")):
            yield f"{tool.where}.name: {tool.text('name')!r} should match '{request.tool_name.pattern}'"


def tool_names_are_unique(request: StrictRequest) -> Iterator[str]:
    """No two tools share a name (tailcallhq/forgecode#892, P guides/function-calling)."""
    for name in repeated(request.tools, "name"):
        yield f"tools: tool names must be unique, {name!r} is repeated"


def a_tool_schema_is_an_object(request: StrictRequest) -> Iterator[str]:
    """A schema has type object and no union on top (dearlordylord/huly-mcp#66, nspady/google-calendar-mcp#39)."""
    for schema in request.schemas:
        clash = [key for key in request.not_on_top if key in schema.data]
        if schema.data.get("type") != "object" or clash:
            yield f"{schema.where}: schema must have type 'object' and not have {clash or 'another'} at the top"


def a_tool_schema_is_valid(request: StrictRequest) -> Iterator[str]:
    """A schema follows JSON Schema draft 2020-12 (P define-tools, P guides/function-calling)."""
    for schema in request.schemas:
        # An older draft named in `$schema` would be judged by its own rules.
        if not jsonschema_rs.meta.is_valid({key: value for key, value in schema.data.items() if key != "$schema"}):
            yield f"{schema.where}: JSON schema is invalid, it must match JSON Schema draft 2020-12"


def tool_choice_has_its_tools(request: StrictRequest) -> Iterator[str]:
    """A choice needs tools (P define-tools, P guides/function-calling)."""
    if request.body.get("tool_choice") is not None and not as_list(request.body.get("tools")):
        yield "tool_choice: may only be specified while providing tools"


def every_call_is_answered(request: StrictRequest) -> Iterator[str]:
    """Results for each call follow at once (anthropics/claude-code#5060, BerriAI/litellm#28995)."""
    for exchange in request.exchanges:
        answered = {result.text(request.result_key) for result in exchange.results}
        for call in exchange.calls:
            if call.text(request.call_key) not in answered:
                yield f"{call.where}: call {call.text(request.call_key)} has no result right after it"


def every_result_has_its_call(request: StrictRequest) -> Iterator[str]:
    """A result follows its call (anthropics/claude-code#13460, FoundationAgents/OpenManus#744)."""
    for exchange in request.exchanges:
        called = {call.text(request.call_key) for call in exchange.calls}
        for result in exchange.results:
            if result.text(request.result_key) not in called:
                yield f"{result.where}: no call {result.text(request.result_key)} right before it"


def a_call_is_answered_once(request: StrictRequest) -> Iterator[str]:
    """No call is answered twice (vectorize-io/hindsight#4250, agno-agi/agno#5116, vercel/ai#13307)."""
    for exchange in request.exchanges:
        for id in repeated(exchange.results, request.result_key):
            yield f"{exchange.where}: each call must have a single result, found several for {id}"


def call_ids_are_unique_in_a_turn(request: StrictRequest) -> Iterator[str]:
    """No two calls of a turn share an id; over the history they may (BerriAI/litellm#23510, can1357/oh-my-pi#2055)."""
    for exchange in request.exchanges:
        for id in repeated(exchange.calls, request.call_key):
            yield f"{exchange.where}: ids of calls must be unique, {id} is repeated"


def repeated(items: Sequence[Item], key: str) -> list[str]:
    """Return the texts that a field has in more than one of the items."""
    return [text for text, times in Counter(item.text(key) for item in items).items() if text and times > 1]


SHARED_RULES: tuple[Rule[StrictRequest], ...] = rules_of(globals())
