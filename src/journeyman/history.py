"""The conversation of one run: append-only, and sendable at every moment.

This module owns one rule, in the strictest form any provider demands: every call of an assistant message is answered
by exactly one result, in call order, in the next user message, results before anything else; no message is empty; what
the model said is never changed. To hold it, nothing is appended to the user's side directly. Results and texts are
*staged*, and become one user message when the next request is built or the run ends. A user message is final once the
model has answered it. Imports `types`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pydantic_core import from_json

from journeyman.types import (
    Block,
    Document,
    Image,
    Message,
    Opaque,
    Text,
    ToolResult,
    ToolUse,
    UserContent,
)

NO_OUTPUT = "(no output)"
"""The text of a result that has none: a blank result is not sendable."""

INTERRUPTED = "Error: interrupted before it finished. Whether it took effect is unknown."

_SENDABLE_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch


class History:
    """A conversation. Built from messages of any origin, it mends what could not be sent."""

    __slots__ = ("_answers", "_calls", "_ids", "_messages", "_said")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._messages: list[Message] = []
        self._calls: dict[str, ToolUse] = {}
        """The calls of the last assistant message, in order, until their results are committed."""
        self._answers: dict[str, ToolResult] = {}
        """The staged results."""
        self._said: list[UserContent] = []
        """What the user's side says after the staged results."""
        self._ids: set[str] = set()
        for message in messages:
            self._replay(message)
        self.close()

    # -- reading

    @property
    def messages(self) -> Sequence[Message]:
        """The committed messages, oldest first. Grows as the history does."""
        return self._messages

    @property
    def unanswered(self) -> tuple[ToolUse, ...]:
        """The calls that have no staged result yet, in call order."""
        return tuple(call for id, call in self._calls.items() if id not in self._answers)

    def export(self) -> tuple[Message, ...]:
        """Return the committed messages, as they are now."""
        return tuple(self._messages)

    # -- writing

    def say(self, *content: UserContent) -> None:
        """Stage content for the next user message, after the results. Blank texts are left out."""
        self._said += [block for block in content if not (isinstance(block, Text) and not block.text.strip())]

    def answer(self, result: ToolResult) -> ToolResult:
        """Stage the result of a call, and return it as it will be sent.

        Raises:
            KeyError: the last assistant message has no unanswered call of that id.
        """
        if result.tool_use_id not in self._calls or result.tool_use_id in self._answers:
            raise KeyError(f"No call {result.tool_use_id!r} waits for a result.")
        sendable = _never_blank(result)
        self._answers[result.tool_use_id] = sendable
        return sendable

    def respond(self, content: Sequence[Block]) -> Message | None:
        """Append what the model said, and return it as stored: None if it said nothing.

        It goes on from the message before it when that is the model's too. Ids that are empty, repeated or
        not sendable are replaced; the block keeps the provider's as `wire_id`.

        Raises:
            ValueError: something is staged that was not committed first.
        """
        if self._calls or self._said:
            raise ValueError("The staged user message was not committed before the model's answer.")
        stored = tuple(self._sendable(block) for block in content if not _is_blank(block))
        if not stored:
            return None
        message = Message("assistant", stored, continues=self._ends_with("assistant"))
        self._messages.append(message)
        self._calls = {call.id: call for call in message.tool_uses}
        return message

    def commit(self) -> Message | None:
        """Make the staged results and texts the next user message, and return it: None if nothing is staged.

        What is said after a user message that the model has not answered becomes part of that message.

        Raises:
            ValueError: a call has no result yet.
        """
        if self.unanswered:
            raise ValueError(f"Calls without a result: {[call.id for call in self.unanswered]}.")
        results = [self._answers[id] for id in self._calls]
        said = [] if self._waits_for_server() else self._said
        if not results and not said:
            return None
        self._said = self._said[len(said) :]
        self._calls, self._answers = {}, {}
        return self._append_user((*results, *said))

    def close(self, text: str = INTERRUPTED) -> Message | None:
        """Answer every unanswered call with the error `text`, and commit. Return the message, None if there is none."""
        for call in self.unanswered:
            self.answer(ToolResult(text, is_error=True, tool_use_id=call.id))
        return self.commit()

    # -- inside

    def _append_user(self, content: tuple[Block, ...]) -> Message:
        if self._ends_with("user"):
            content = (*self._messages.pop().content, *content)
        message = Message("user", content)
        self._messages.append(message)
        return message

    def _ends_with(self, role: str) -> bool:
        return bool(self._messages) and self._messages[-1].role == role

    def _sendable(self, block: Block) -> Block:
        if not isinstance(block, ToolUse):
            return block
        if not _is_object(block.input_json):
            block = replace(block, input_json="{}", malformed=block.input_json)
        if block.id in self._ids or not _SENDABLE_ID(block.id):
            block = replace(block, id=self._new_id(), wire_id=block.id if block.wire_id is None else block.wire_id)
        self._ids.add(block.id)
        return block

    def _new_id(self) -> str:
        number = len(self._ids) + 1
        while f"call_{number}" in self._ids:
            number += 1
        return f"call_{number}"

    def _waits_for_server(self) -> bool:
        """True when the model waits for a tool of the provider's: then a user message may hold results only."""
        if not self._ends_with("assistant"):
            return False
        opaque = [from_json(block.json) for block in self._messages[-1].content if isinstance(block, Opaque)]
        asked = {str(block["id"]) for block in opaque if block.get("type") == "server_tool_use"}
        return bool(asked - {str(block.get("tool_use_id")) for block in opaque})

    def _replay(self, message: Message) -> None:
        if message.role == "assistant":
            self.close()
            self.respond([block for block in message.content if not isinstance(block, _NOT_THE_MODELS)])
            return
        for block in message.content:
            if isinstance(block, ToolResult):
                self._replay_result(block)
            elif isinstance(block, UserContent):
                self.say(block)

    def _replay_result(self, result: ToolResult) -> None:
        asked = (call for call in self.unanswered if result.tool_use_id in (call.id, call.wire_id))
        call = next(asked, None)
        if call is not None:
            self.answer(replace(result, tool_use_id=call.id))


_NOT_THE_MODELS = (ToolResult, Image, Document)


def _is_blank(block: Block) -> bool:
    return isinstance(block, Text) and not block.text


def _never_blank(result: ToolResult) -> ToolResult:
    content = result.content
    if isinstance(content, str):
        return result if content.strip() else replace(result, content=NO_OUTPUT)
    kept = tuple(block for block in content if not (isinstance(block, Text) and not block.text.strip()))
    if len(kept) == len(content) > 0:
        return result
    return replace(result, content=kept or NO_OUTPUT)


def _is_object(text: str) -> bool:
    try:
        return isinstance(from_json(text), dict)
    except ValueError:
        return False
