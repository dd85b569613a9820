"""An OpenAI request as the rules see it: typed views over untrusted JSON, and what the server has said before.

Nothing here judges.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import orjson

from tests.support.messages_json import Json, as_object, as_text
from tests.support.strict_request import Exchange, Item, StrictRequest, items_of
from tests.support.strict_schema import Api

NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}\Z")


@dataclass(frozen=True, slots=True)
class Served:
    """One answer of Responses as it left the server."""

    items: tuple[Json, ...]
    stored: bool


class Memory:
    """All answers served so far."""

    def __init__(self) -> None:
        self.calls: defaultdict[str, list[Json]] = defaultdict(list)
        """The functions of Chat Completions by id of their call."""
        self.served: list[Served] = []

    def remember_calls(self, calls: Iterable[Json]) -> None:
        """Keep the calls of a chat answer."""
        for call in calls:
            self.calls[as_text(call.get("id"))].append(as_object(call.get("function")))

    def remember_items(self, items: Sequence[Json], *, stored: bool) -> None:
        """Keep the output of a response."""
        self.served.append(Served(tuple(items), stored))

    def found(self, item: Item) -> list[tuple[Served, int]]:
        """Return where an item was served: by its call id, else by its own id."""
        key = "call_id" if item.type == "function_call" else "id"
        wanted = item.text(key)
        return [
            (served, index)
            for served in self.served
            for index, each in enumerate(served.items)
            if wanted and each.get("type") == item.type and each.get(key) == wanted
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """How a compatible server differs from OpenAI's."""

    reasoning_field: str | None = None
    """The field of a chat message with the reasoning; it may come back. None: there is none."""
    longest_id: int | None = 40
    """How long the id of a call may be in Chat Completions. OpenAI takes 64 by now (jin-bo/agentao#321), older models
    and some gateways take 40. None: any length."""
    extensions: frozenset[str] = field(default_factory=frozenset[str])
    """Parameters that only this server knows."""
    takes_marks: bool = False
    """Whether parts of content and tools may have `cache_control`."""
    refused: frozenset[str] = field(default_factory=frozenset[str])
    """Fields of OpenAI's that this server does not know, and refuses."""
    exact_id: int | None = None
    """Of how many letters and digits the ids of calls must be; None: see `longest_id`."""
    replies_to_results: bool = False
    """Whether the user may speak only after the model has answered results."""
    reasoning_with_calls: bool = False
    """Whether each message with calls must have `reasoning_field`."""
    always_counts: bool = False
    """Whether streams tell their usage without being asked, with the chunk that ends them."""
    output_without_reasoning: bool = False
    """Whether the count of output tokens leaves out those of reasoning; the total has both."""
    thinks_in_content: bool = False
    """Whether reasoning comes as parts of the content."""
    good_end: str = "stop"
    """What is said of an answer that ended by itself."""


class Request(StrictRequest):
    """One request with its views. `headers` get lower-case names; `memory` holds what the server has said."""

    tool_name = NAME
    not_on_top = ("oneOf", "anyOf", "allOf", "enum", "not")

    def __init__(
        self, api: Api, body: Json, headers: Mapping[str, str], memory: Memory, service: Service | None = None
    ) -> None:
        super().__init__(body, headers)
        self.api: Api = api
        self.memory = memory
        self.service = Service() if service is None else service
        self.call_key, self.result_key = ("id", "tool_call_id") if api == "chat" else ("call_id", "call_id")

    @cached_property
    def items(self) -> list[Item]:
        """The messages of Chat Completions, or the input of Responses, of which a string is one message."""
        given = self.body.get("messages" if self.api == "chat" else "input")
        if isinstance(given, str):
            return [Item("input", {"role": "user", "content": given})] if given else []
        return items_of(given, "messages" if self.api == "chat" else "input")

    @cached_property
    def exchanges(self) -> Sequence[Exchange]:
        found = [Exchange("", [], [])]
        for item in self.items:
            if item.role == "tool" or item.type == "function_call_output":
                found[-1] = replace(found[-1], results=[*found[-1].results, item])
            elif item.type == "function_call" and not found[-1].results:
                found[-1] = replace(found[-1], calls=[*found[-1].calls, item])
            elif self.api == "chat" or item.role in ("user", "system", "developer") or found[-1].results:
                calls = [item] if item.type == "function_call" else item.each("tool_calls")
                found.append(Exchange(item.where, calls, []))
        return found

    @property
    def calls(self) -> list[Item]:
        """All calls of the conversation."""
        return [call for exchange in self.exchanges for call in exchange.calls]

    @cached_property
    def tools(self) -> list[Item]:
        tools = [tool for tool in items_of(self.body.get("tools"), "tools") if tool.type == "function"]
        return [tool.under("function") for tool in tools] if self.api == "chat" else tools

    @property
    def parts(self) -> list[Item]:
        """Every part of content in messages, items and results."""
        return [part for owner in self.items for key in ("content", "output") for part in owner.each(key)]


def function_of(call: Item) -> Item:
    """Return what has the name and the arguments of a call."""
    return call.under("function") if call.type == "function" else call


def is_object_text(value: object) -> bool:
    """Tell whether a value is the text of a JSON object."""
    try:
        return isinstance(value, str) and isinstance(orjson.loads(value), dict)
    except orjson.JSONDecodeError:
        return False
