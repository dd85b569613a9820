"""A Messages API request as the rules see it: typed views over untrusted JSON.

Nothing here judges.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tests.support.messages_json import Json, as_list, as_object, as_text
from tests.support.messages_memory import Echo, Memory, comparable, digest


@dataclass(frozen=True, slots=True)
class Block:
    """One content block, tool or system block, and where it stands in the request."""

    where: str
    data: Json
    type: str = ""

    def text(self, key: str) -> str:
        """Return a string field, empty if it is missing."""
        return as_text(self.data.get(key))

    def nested(self) -> list["Block"]:
        """Return the blocks inside a tool result."""
        return blocks_of(self.data.get("content"), f"{self.where}.content") if self.type == "tool_result" else []


def blocks_of(content: object, where: str) -> list[Block]:
    """Return the blocks of a content list; a string has none."""
    items = [as_object(item) for item in as_list(content)]
    return [Block(f"{where}.{index}", item, as_text(item.get("type"))) for index, item in enumerate(items)]


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of `messages`; a string content is seen as one text block."""

    where: str
    role: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """Consecutive messages of one role, merged, as the API merges them."""

    where: str
    role: str
    blocks: tuple[Block, ...]

    def of_type(self, *types: str) -> list[Block]:
        """Return the blocks of these types, in order."""
        return [block for block in self.blocks if block.type in types]

    def comparable(self) -> list[Json]:
        """Return the blocks without what a client may change."""
        return list(comparable(block.data for block in self.blocks))


class Request:
    """One request with its views.

    `headers` get lower-case names; `size` is the body's in bytes; `memory` holds what the server has said.
    """

    def __init__(self, body: Json, headers: Mapping[str, str], size: int, memory: Memory) -> None:
        self.body = body
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.size = size
        self.memory = memory

    @cached_property
    def messages(self) -> list[Message]:
        """The messages as sent."""
        return [_message(block.where, block.data) for block in blocks_of(self.body.get("messages"), "messages")]

    @cached_property
    def turns(self) -> list[Turn]:
        """The messages as the API merges them."""
        turns: list[Turn] = []
        for message in self.messages:
            if turns and turns[-1].role == message.role:
                last = turns.pop()
                turns.append(Turn(last.where, last.role, last.blocks + message.blocks))
            else:
                turns.append(Turn(message.where, message.role, message.blocks))
        return turns

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
    def tools(self) -> list[Block]:
        return blocks_of(self.body.get("tools"), "tools")

    @property
    def thinking(self) -> str:
        """The type of thinking that is asked for; empty if none."""
        kind = as_text(as_object(self.body.get("thinking")).get("type"))
        return "" if kind == "disabled" else kind

    @property
    def continues_a_pause(self) -> bool:
        """Whether the last message is a paused answer, to be continued by the model."""
        if not self.turns or self.turns[-1].role != "assistant":
            return False
        last = self.turns[-1]
        if any(turn is last and echo.served.paused for turn, echo in self.echoes):
            return True
        return bool(last.blocks) and is_server_side(last.blocks[-1])

    @cached_property
    def cacheable(self) -> list[Block]:
        """Every place that may carry a cache mark, in the order in which the cache reads them."""
        places = [*self.tools, *blocks_of(self.body.get("system"), "system")]
        for message in self.messages:
            for block in message.blocks:
                places += [*block.nested(), block]
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


def is_server_side(block: Block) -> bool:
    """Tell whether a block is a call or a result of a tool that the provider runs."""
    return block.type == "server_tool_use" or is_server_result(block)


def is_server_result(block: Block) -> bool:
    """Tell whether a block is the result of a tool that the provider ran."""
    return block.type.endswith("_tool_result")


def _message(where: str, data: Json) -> Message:
    content = data.get("content")
    if isinstance(content, str):
        blocks = [Block(f"{where}.content", {"text": content, "type": "text"}, "text")] if content else []
    else:
        blocks = blocks_of(content, f"{where}.content")
    return Message(where, as_text(data.get("role")), tuple(blocks))
