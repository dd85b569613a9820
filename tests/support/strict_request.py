"""What the strict servers share: a request as rules see it, what a rule is, and the rules that differ only in names.

A table of rules is all there is to know of them: each row has the rule's sentence with its source (P is the provider's
documentation, # an issue or pull request), where a request breaks it, and what must be done to a good request so that
it does. `tests/support_tests/test_rules.py` makes these requests; a rule that they do not break fails.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import ClassVar, Final, Generic, TypeAlias, TypeVar, cast

import jsonschema_rs

from tests.support.messages_json import Json, as_list, as_number, as_object, as_text


@dataclass(frozen=True, slots=True)
class Item:
    """One object in a request (a message, a part of content, a call, a tool), and where it stands."""

    where: str
    data: Json

    def __str__(self) -> str:
        return self.where

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
    call_key: str = "id"
    result_key: str = "id"
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

    def number(self, key: str) -> float | None:
        """Return a number of the body; None for anything else."""
        return as_number(self.body.get(key))

    @cached_property
    def calls(self) -> list[Item]:
        """All calls of the conversation."""
        return [call for exchange in self.exchanges for call in exchange.calls]

    @cached_property
    def results(self) -> list[Item]:
        """All results of the conversation that stand where calls are answered."""
        return [result for exchange in self.exchanges for result in exchange.results]

    @cached_property
    def schemas(self) -> list[Item]:
        """The schemas of the tools that have one."""
        return [tool.under(self.schema_key) for tool in self.tools if tool.data.get(self.schema_key) is not None]


class _Gone(Enum):
    GONE = "gone"


GONE: Final = _Gone.GONE
"""Stands in a change for a value that is deleted."""

R_contra = TypeVar("R_contra", bound=StrictRequest, contravariant=True)
Found: TypeAlias = Iterable[Item | str] | bool
"""Where a rule is broken; True where no place is to be named."""
Change: TypeAlias = Mapping[str, object] | Callable[[R_contra], object]
"""What is put at dotted paths of a body (`+` appends to a list, `@` is a header), or what is done to a request."""


@dataclass(frozen=True, slots=True)
class Breach(Generic[R_contra]):
    """How a rule is broken: each change makes of the good request of this name one that breaks it."""

    base: str
    changes: "tuple[Change[R_contra], ...]"


def on(base: str, *changes: Change[R_contra]) -> Breach[R_contra]:
    """Return the breach of a rule by changes of a good request."""
    return Breach(base, changes)


@dataclass(frozen=True, slots=True)
class Rule(Generic[R_contra]):
    """One row of a table; see above."""

    text: str
    """The rule, and in parentheses its source."""
    broken: Callable[[R_contra], Found]
    breach: Breach[R_contra]


def broken_rules(rules: Iterable[Rule[R_contra]], request: R_contra) -> list[str]:
    """Return every violation in a request, each as `rule (source): place`."""
    found: list[str] = []
    for rule in rules:
        places = rule.broken(request)
        found += [rule.text] * places if isinstance(places, bool) else [f"{rule.text}: {at}" for at in places]
    return found


def make(change: Change[R_contra], request: R_contra) -> None:
    """Make a change to a request, in place."""
    if callable(change):
        change(request)
        return
    for path, value in change.items():
        place: object = request.headers if path.startswith("@") else request.body
        *steps, last = [path[1:]] if path.startswith("@") else path.split(".")
        for step in steps:
            place = as_list(place)[int(step)] if step.isdigit() else as_object(place)[step]
        if last == "+":
            as_list(place).append(value)
        elif value is GONE:
            cast("dict[object, object]", place).pop(int(last) if last.isdigit() else last)
        else:
            cast("dict[object, object]", place)[int(last) if last.isdigit() else last] = value


KEY_HEADERS: Final = ("x-api-key", "api-key", "x-goog-api-key")


def api_key(headers: Mapping[str, str]) -> str:
    """Return the key of a request, empty if it has none; some services have a header of their own for it."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    own = [key for name in KEY_HEADERS if (key := headers.get(name, ""))]
    return own[0] if own else token.strip() if scheme.lower() == "bearer" else ""


def repeated(items: Sequence[Item], key: str) -> Iterator[str]:
    """Yield the texts that a field has in more than one of the items."""
    times = Counter(item.text(key) for item in items)
    return (f"{text!r} is repeated" for text, n in times.items() if text and n > 1)


def _is_schema(schema: Json) -> bool:
    # An older draft named in `$schema` would be judged by its own rules.
    return jsonschema_rs.meta.is_valid({key: value for key, value in schema.items() if key != "$schema"})


SHARED: tuple[Rule[StrictRequest], ...] = (
    Rule(
        "A key comes as a bearer token, or in a header of the provider's (P api/overview, P authentication)",
        lambda r: not api_key(r.headers),
        on("plain text", {f"@{name}": "" for name in KEY_HEADERS} | {"@authorization": "Basic azpr"}),
    ),
    Rule(
        "The content is JSON (P api/overview, P api-reference)",
        lambda r: r.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json",
        on("plain text", {"@content-type": "application/x-www-form-urlencoded"}, {"@content-type": ""}),
    ),
    Rule(
        "Names of tools have few characters (P define-tools, P guides/function-calling, home-assistant/core#147760)",
        lambda r: (f"{tool}.name" for tool in r.tools if not r.tool_name.match(tool.text("name"))),
        on(
            "parallel calls",
            lambda r: r.tools[0].data.update(name="a b"),
            lambda r: r.tools[0].data.update(name="q" * 129),
        ),
    ),
    Rule(
        "No two tools share a name (tailcallhq/forgecode#892, P guides/function-calling)",
        lambda r: repeated(r.tools, "name"),
        on("parallel calls", lambda r: r.tools[0].data.update(name=r.tools[1].text("name"))),
    ),
    Rule(
        "The schema of a tool is an object without unions at its top (dearlordylord/huly-mcp#66)",
        lambda r: (s for s in r.schemas if s.data.get("type") != "object" or s.data.keys() & {*r.not_on_top}),
        on(
            "parallel calls",
            lambda r: r.schemas[0].data.update(type="array"),
            lambda r: r.schemas[0].data.update([(key, []) for key in (*r.not_on_top, "type")]),
        ),
    ),
    Rule(
        "The schema of a tool follows JSON Schema 2020-12 (P define-tools, P guides/function-calling)",
        lambda r: (schema for schema in r.schemas if not _is_schema(schema.data)),
        on(
            "parallel calls",
            lambda r: r.schemas[0].under("properties").data.update(sql={"type": "text"}),
            lambda r: r.schemas[0].data.update({"$schema": "http://json-schema.org/draft-07/schema#", "items": []}),
        ),
    ),
    Rule(
        "A choice of tools needs tools (P define-tools, P guides/function-calling)",
        lambda r: r.body.get("tool_choice") is not None and not as_list(r.body.get("tools")),
        on("plain text", {"tool_choice": "auto", "tools": []}),
    ),
    Rule(
        "Results of all calls follow at once (anthropics/claude-code#5060, BerriAI/litellm#28995)",
        lambda r: (
            call
            for exchange in r.exchanges
            for call in exchange.calls
            if call.text(r.call_key) not in {result.text(r.result_key) for result in exchange.results}
        ),
        on("parallel calls", lambda r: r.results[0].data.update({r.result_key: "t9"})),
    ),
    Rule(
        "A result follows its call (anthropics/claude-code#13460, FoundationAgents/OpenManus#744)",
        lambda r: (
            result
            for exchange in r.exchanges
            for result in exchange.results
            if result.text(r.result_key) not in {call.text(r.call_key) for call in exchange.calls}
        ),
        on("parallel calls", lambda r: r.results[0].data.update({r.result_key: "t9"})),
    ),
    Rule(
        "No call is answered twice (vectorize-io/hindsight#4250, agno-agi/agno#5116, vercel/ai#13307)",
        lambda r: (each for exchange in r.exchanges for each in repeated(exchange.results, r.result_key)),
        on("parallel calls", lambda r: r.results[0].data.update({r.result_key: r.results[1].text(r.result_key)})),
    ),
    Rule(
        "Calls of a turn have different ids; over the history they need not (BerriAI/litellm#23510)",
        lambda r: (each for exchange in r.exchanges for each in repeated(exchange.calls, r.call_key)),
        on("parallel calls", lambda r: r.calls[0].data.update({r.call_key: r.calls[1].text(r.call_key)})),
    ),
)
