"""An OpenAI request as the rules see it: typed views over untrusted JSON, and what the server has said before.

Nothing here judges.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tests.support.messages_json import Json, as_list, as_object, as_text
from tests.support.openai_schema import Api


@dataclass(frozen=True, slots=True)
class Item:
    """One message, input item, part of content, call or tool, and where it stands in the request."""

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


class Request:
    """One request with its views. `headers` get lower-case names; `memory` holds what the server has said."""

    def __init__(
        self, api: Api, body: Json, headers: Mapping[str, str], memory: Memory, service: Service | None = None
    ) -> None:
        self.api: Api = api
        self.body = body
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.memory = memory
        self.service = Service() if service is None else service

    @cached_property
    def messages(self) -> list[Item]:
        """The messages of Chat Completions."""
        return items_of(self.body.get("messages"), "messages")

    @cached_property
    def items(self) -> list[Item]:
        """The input of Responses; a string is one message."""
        given = self.body.get("input")
        if isinstance(given, str):
            return [Item("input", {"role": "user", "content": given})] if given else []
        return items_of(given, "input")

    @cached_property
    def tools(self) -> list[Item]:
        """The functions that are offered, each with its `name`, `parameters` and `strict`."""
        tools = [tool for tool in items_of(self.body.get("tools"), "tools") if tool.type == "function"]
        return [tool.under("function") for tool in tools] if self.api == "chat" else tools

    @property
    def parts(self) -> list[Item]:
        """Every part of content in messages, items and results."""
        owners = [*self.messages, *self.items]
        return [part for owner in owners for key in ("content", "output") for part in owner.each(key)]
