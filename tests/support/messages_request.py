"""A Messages API request as the rules see it: typed views over untrusted JSON. Nothing here judges."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from tests.support.messages_json import Json, as_list, as_object, as_text
from tests.support.messages_memory import Echo, Memory, comparable, digest
from tests.support.strict_request import Exchange, Item, StrictRequest, items_of


@dataclass(frozen=True, slots=True)
class Turn:
    """One entry of `messages`, or consecutive ones of one role, merged, as the API merges them."""

    where: str
    role: str
    blocks: tuple[Item, ...]

    def of_type(self, *types: str) -> list[Item]:
        """Return the blocks of these types, in order."""
        return [block for block in self.blocks if block.type in types]

    def comparable(self) -> list[Json]:
        """Return the blocks without what a client may change."""
        return list(comparable(block.data for block in self.blocks))


NO_TURN = Turn("", "", ())


class Request(StrictRequest):
    """One request with its views. `headers` get lower-case names; `memory` holds what the server has said."""

    tool_name = re.compile(r"^[a-zA-Z0-9_-]{1,128}\Z")
    schema_key = "input_schema"
    not_on_top = ("anyOf", "oneOf", "allOf")
    call_key, result_key = "id", "tool_use_id"

    def __init__(self, body: Json, headers: Mapping[str, str], memory: Memory) -> None:
        super().__init__(body, headers)
        self.memory = memory

    @cached_property
    def messages(self) -> list[Turn]:
        """The messages as sent; a string content is seen as one text block."""
        return [_message(message) for message in items_of(self.body.get("messages"), "messages")]

    @cached_property
    def turns(self) -> list[Turn]:
        """The messages as the API merges them."""
        turns: list[Turn] = []
        for message in self.messages:
            if turns and turns[-1].role == message.role:
                last = turns.pop()
                turns.append(Turn(last.where, last.role, last.blocks + message.blocks))
            else:
                turns.append(message)
        return turns

    @cached_property
    def exchanges(self) -> Sequence[Exchange]:
        return [
            Exchange(turn.where, turn.of_type("tool_use"), following.of_type("tool_result"))
            for turn, following in pairwise([NO_TURN, *self.turns, NO_TURN])
        ]

    @cached_property
    def echoes(self) -> list[tuple[Turn, Echo]]:
        """The answers of this server that the request sends back."""
        assistant = [turn for turn in self.turns if turn.role == "assistant" and self.memory]
        return [(turn, echo) for turn in assistant for echo in self.memory.echoes(turn.comparable())]

    @property
    def call_ids(self) -> set[str]:
        """The ids of all calls in the conversation."""
        return {block.text("id") for turn in self.turns for block in turn.of_type("tool_use")}

    @cached_property
    def tools(self) -> list[Item]:
        return items_of(self.body.get("tools"), "tools")

    @property
    def schemas(self) -> list[Item]:
        return [tool.under("input_schema") for tool in self.tools if tool.data.get("type") in (None, "custom")]

    @property
    def thinking(self) -> str:
        """The type of thinking that is asked for; empty if none."""
        kind = as_text(as_object(self.body.get("thinking")).get("type"))
        return "" if kind == "disabled" else kind

    @property
    def continues_a_pause(self) -> bool:
        """Whether the last message is a paused answer, to be continued by the model."""
        last = self.turns[-1] if self.turns else NO_TURN
        if last.role != "assistant":
            return False
        was_paused = any(turn is last and echo.served.paused for turn, echo in self.echoes)
        return was_paused or (bool(last.blocks) and is_server_side(last.blocks[-1]))

    @cached_property
    def cacheable(self) -> list[Item]:
        """Every place that may carry a cache mark, in the order in which the cache reads them."""
        places = [*self.tools, *items_of(self.body.get("system"), "system")]
        for message in self.messages:
            for block in message.blocks:
                places += [*nested(block), block]
        return places

    def prefix(self, turn: Turn | None = None, start: int = 0) -> str:
        """Fingerprint what the model read: system, tools and blocks, up to `start` of `turn` if given."""
        parts: list[object] = [self.body.get("system")]
        parts += comparable(tool.data for tool in self.tools)
        for each in self.turns:
            blocks = each.comparable()
            parts += [(each.role, block) for block in (blocks[:start] if each is turn else blocks)]
            if each is turn:
                break
        return digest(parts)


def nested(block: Item) -> list[Item]:
    """Return the blocks inside a tool result."""
    return block.each("content") if block.type == "tool_result" else []


def is_server_side(block: Item) -> bool:
    """Tell whether a block is a call or a result of a tool that the provider runs."""
    return block.type == "server_tool_use" or is_server_result(block)


def is_server_result(block: Item) -> bool:
    """Tell whether a block is the result of a tool that the provider ran."""
    return block.type.endswith("_tool_result")


def _message(message: Item) -> Turn:
    content = message.data.get("content")
    if isinstance(content, str):
        blocks = [Item(f"{message.where}.content", {"text": content, "type": "text"})] if content else []
    else:
        blocks = items_of(as_list(content), f"{message.where}.content")
    return Turn(message.where, message.role, tuple(blocks))
