"""The conversation of one run: append-only, and sendable at every moment.

This module owns one rule, in the strictest form any provider demands: every call of an assistant message is answered
by exactly one result, in call order, in the next user message, results before anything else; no message is empty, or
of blanks only; what the model said is never changed. To hold it, nothing is appended to the user's side directly.
Results and texts are *staged*, and become one user message when the next request is built or the run ends. A user
message is final once the model has answered it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Final, TypeAlias, TypeVar

import orjson

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.faces import load_function
from journeyman.definition.json_numbers import LONG, collecting_later
from journeyman.definition.narrowing import object_in
from journeyman.definition.problems import explain_arguments
from journeyman.types import (
    Audio,
    Block,
    Document,
    Image,
    Message,
    Opaque,
    Text,
    TextOrigin,
    Thinking,
    ToolReference,
    ToolResult,
    ToolUse,
    UserContent,
)

__all__ = ["Closing", "History", "ImportedHistory", "from_messages"]

T = TypeVar("T", bound=Block | ToolReference)

NO_OUTPUT = "(no output)"
"""The text of a result that has none: a blank result is not sendable."""

BEGINNING_LEFT_OUT: Final = "[The beginning of the conversation is left out.]"
"""The words put into the user's mouth where a conversation begins with the model: providers refuse that."""

INTERRUPTED = "Error: interrupted before it finished. Whether it took effect is unknown."

Closing: TypeAlias = str | Callable[[ToolUse], str]
"""The text of the result that closes a call: one for all, or one for each."""

# The letters are Anthropic's rule, the length that of OpenAI's Responses API: both refuse a whole request for one id.
_SENDABLE_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch


@explain_arguments
class History:
    """A conversation. Built from messages of any origin, it repairs what could not be sent."""

    __slots__ = (
        *("_answers", "_calls", "_has_opaque", "_ids", "_messages", "_said"),
        *("calls", "changed_from", "messages", "view"),
    )

    def __init__(self, messages: Iterable[Message] = (), *, closing: Closing = INTERRUPTED) -> None:
        """`closing` is what the results say that are missing in `messages`."""
        self._messages: list[Message] = []
        self.messages: Sequence[Message] = self._messages
        """The committed messages, oldest first. Grows as the history does."""
        self.calls: tuple[ToolUse, ...] = ()
        """The calls of the last message, in order; none if it is the user's."""
        self._calls: dict[str, ToolUse] = {}
        """The calls of the last assistant message, in order, until their results are committed."""
        self._answers: dict[str, ToolResult] = {}
        """The staged results."""
        self._said: list[UserContent] = []
        """What the user's side says after the staged results."""
        self._ids: set[str] = set()
        self._has_opaque = False
        """True once the model said something that only its provider understands."""
        self.view: object = None
        """What runs send in its place, where they compact it. Not read here: `loop/request.py` does."""
        self.changed_from = 0
        """The first message that is new, or another, since whoever stores the history set this."""
        given = list(messages)
        for index, message in enumerate(given):
            if message.role == "assistant" and self._is_answered_after(given, index):
                self._join(message)
            else:
                self._replay(message, closing)
        self.close(closing)

    @property
    def staged(self) -> tuple[UserContent | ToolResult, ...]:
        """The content of the next user message, as far as it is known: results, then texts."""
        return (*self._answers.values(), *self._said)

    @property
    def unanswered(self) -> tuple[ToolUse, ...]:
        """The calls that have no staged result yet, in call order."""
        return tuple(call for id, call in self._calls.items() if id not in self._answers)

    @property
    def may_say(self) -> bool:
        """False while the model waits for a tool of its provider's: texts are then held back."""
        return not self._server_calls()

    @property
    def expects_answer(self) -> bool:
        """True when the next word is the model's: the last message is the user's, or calls are yet to be answered."""
        return bool(self._calls) or self._ends_with("user")

    def export(self) -> tuple[Message, ...]:
        """Return the committed messages, as they are now."""
        return tuple(self._messages)

    def say(self, *content: UserContent) -> list[UserContent]:
        """Stage content for the next user message, after the results, and return it. Blank texts are left out."""
        said = [with_origin(encodable(block)) for block in content if not _is_blank(block)]
        self._said += said
        return said

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
        """Append what the model said, and return it as stored: None if it said nothing, or blanks only.

        It goes on from the message before it when that is the model's too. Ids that are empty, repeated or
        not sendable are replaced; the block keeps the provider's as `wire_id`.

        Raises:
            ValueError: results are staged that were not committed first.
        """
        if self._calls:
            raise ValueError("The staged results were not committed before the model's answer.")
        # Providers refuse an empty text block, and so the whole conversation from then on.
        stored = tuple([self._sendable(block) for block in content if type(block) is not Text or block.text])
        if all([_is_blank(block) for block in stored]):
            return None
        message = Message("assistant", stored, self._ends_with("assistant"))
        self._messages.append(message)
        self._calls = {block.id: block for block in stored if type(block) is ToolUse}
        self.calls = tuple(self._calls.values())
        return message

    def commit(self) -> Message | None:
        """Make the staged results and texts the next user message, and return it: None if nothing is staged.

        What is said after a user message that the model has not answered becomes part of that message.

        Raises:
            ValueError: a call has no result yet.
        """
        if len(self._answers) < len(self._calls):
            raise ValueError(f"Calls without a result: {[call.id for call in self.unanswered]}.")
        said: list[UserContent] = []
        if self._said and not self._server_calls():  # the model may wait for a tool of its provider's
            said, self._said = self._said, []
        if not self._calls:
            return self._append_user((*said,)) if said else None
        content = (*[self._answers[id] for id in self._calls], *said)
        self._calls, self._answers, self.calls = {}, {}, ()
        message = Message("user", content)  # those calls are the message before
        self._messages.append(message)
        return message

    def close(self, text: Closing = INTERRUPTED) -> Message | None:
        """Answer every unanswered call with the error `text`, and commit. Return the message, None if there is none."""
        if len(self._answers) < len(self._calls):
            for call in self.unanswered:
                words = text if isinstance(text, str) else text(call)
                self.answer(ToolResult(words, is_error=True, tool_use_id=call.id))
        return self.commit()

    def forget_server_calls(self) -> None:
        """Take out calls of the provider's tools that the model still waits for: what is said next ends its turn."""
        unanswered = self._server_calls()
        if not unanswered:
            return
        turn = self._last_turn()
        kept: list[Message] = []
        for message in self._messages[turn]:
            content = tuple(block for block in message.content if not _is_call_of(block, unanswered))
            if not all([_is_blank(block) for block in content]):
                kept.append(Message("assistant", content, bool(kept)))
        self._messages[turn] = kept
        # What was stored of the conversation is no longer true from here on: whoever stores it writes it again.
        self.changed_from = min(self.changed_from, turn.start)

    def _append_user(self, content: tuple[Block, ...]) -> Message:
        if self._ends_with("user"):
            # Two messages of the user in a row are merged by providers, each in its own way: here it is one way.
            content = (*self._messages.pop().content, *content)
            self.changed_from = min(self.changed_from, len(self._messages))
        message = Message("user", content)
        self._messages.append(message)
        return message

    def _ends_with(self, role: str) -> bool:
        return bool(self._messages) and self._messages[-1].role == role

    def _sendable(self, block: Block) -> Block:
        if not isinstance(block, ToolUse):
            self._has_opaque = self._has_opaque or isinstance(block, Opaque)
            return encodable(block)
        # Nearly all calls are plain ASCII, and need no copy.
        if block.malformed is not None or not (block.name.isascii() and block.input_json.isascii()):
            block = encodable(block)
        if not _is_object(block.input_json):
            # A call with arguments that are no JSON object cannot be sent back as such: the model reads its own text in
            # the result.
            block = replace(block, input_json="{}", malformed=encodable_text(block.input_json))
        # Some servers number the calls of each answer from the beginning, and a result has to belong to one call.
        if block.id in self._ids or not _SENDABLE_ID(block.id):
            wire_id = block.id if block.wire_id is None else block.wire_id
            block = replace(block, id=self._new_id(), wire_id=encodable_text(wire_id))
        self._ids.add(block.id)
        return block

    def _new_id(self) -> str:
        number = len(self._ids) + 1
        # A provider may have given an id of this form before.
        while f"call_{number}" in self._ids:
            number += 1
        return f"call_{number}"

    def _server_calls(self) -> set[str]:
        """Return the ids of the provider's own tools that the model's turn waits for: a user message may then hold
        results only."""
        if not self._has_opaque:
            # Asked before each message of the user: most conversations hold nothing that only a provider understands.
            return set()
        facts = [
            object_in(block.json)
            for message in self._messages[self._last_turn()]
            for block in message.content
            if isinstance(block, Opaque)
        ]
        asked = {str(each.get("id")) for each in facts if each.get("type") == "server_tool_use"}
        return asked - {str(each.get("tool_use_id")) for each in facts}

    def _last_turn(self) -> slice:
        """Return where the model's last turn is: pauses may have made it several messages. What the user's side said
        after it does not count until the model has answered that."""
        end = len(self._messages)
        while end > 0 and self._messages[end - 1].role == "user":
            end -= 1
        start = end
        while start > 0 and self._messages[start - 1].role == "assistant":
            start -= 1
        return slice(start, end)

    def _is_answered_after(self, messages: Sequence[Message], index: int) -> bool:
        """Return whether calls of the last message wait for results that come after what the model says from
        `messages[index]` on: providers take all of that for one message."""
        if not self._calls or self.staged:
            return False
        said = list(takewhile(lambda message: message.role == "assistant", messages[index:]))
        answers = takewhile(lambda message: message.role == "user", messages[index + len(said) :])
        results = [block for each in answers for block in each.content if isinstance(block, ToolResult)]
        left = Counter([result.tool_use_id for result in results])
        left -= Counter([call.id for message in said for call in message.tool_uses])
        # A conversation that another program stored names its calls by the ids of the provider.
        return any(left[call.id] or (call.wire_id is not None and left[call.wire_id]) for call in self.unanswered)

    def _join(self, message: Message) -> None:
        before = self._messages.pop()
        self._calls, waiting = {}, self._calls
        joined = self.respond([block for block in message.content if not isinstance(block, _NOT_THE_MODELS)])
        if joined is not None:
            self._messages.pop()
        self._messages.append(replace(before, content=(*before.content, *(joined.content if joined else ()))))
        self._calls = waiting | self._calls
        self.calls = tuple(self._calls.values())

    def _replay(self, message: Message, closing: Closing) -> None:
        if message.role == "assistant":
            self.close(closing)
            self.respond([block for block in message.content if not isinstance(block, _NOT_THE_MODELS)])
            return
        for block in message.content:
            if isinstance(block, ToolResult):
                asked = (call for call in self.unanswered if block.tool_use_id in (call.id, call.wire_id))
                call = next(asked, None)
                if call is not None:
                    self.answer(replace(block, tool_use_id=call.id))
            elif isinstance(block, UserContent):
                self.say(block)
        if self._said:
            self.forget_server_calls()


_NOT_THE_MODELS = (ToolResult, Image, Document, Audio)


def turn_text(messages: Sequence[Message]) -> str:
    """Return the text of the model's last turn, which pauses may have cut into several messages."""
    texts: list[str] = []
    for message in reversed(messages):
        if message.role != "assistant":
            break
        texts.append(message.text)
        if not message.continues:
            break
    return "".join(reversed(texts))


def _is_blank(block: Block | ToolReference) -> bool:
    return isinstance(block, Text) and not block.text.strip()


def _never_blank(result: ToolResult) -> ToolResult:
    content = result.content
    if isinstance(content, str):
        # The usual result is sent as it is: nothing is encoded or copied to find that out.
        if content.isascii() and not content.isspace() and content:
            return result
        return replace(result, content=encodable_text(content) if content.strip() else NO_OUTPUT)
    kept = tuple(encodable(block) for block in content if not _is_blank(block))
    return replace(result, content=kept or NO_OUTPUT)


def encodable(block: T) -> T:
    """Return the block, its text fit for UTF-8: half a surrogate pair, as in a broken file name, is not."""
    match block:
        case ToolUse():
            is_plain = block.id.isascii() and block.name.isascii() and block.input_json.isascii()
            if is_plain and block.malformed is None:
                return block
            id, name, json = map(encodable_text, (block.id, block.name, block.input_json))
            wrong = block.malformed and encodable_text(block.malformed)
            return replace(block, id=id, name=name, input_json=json, malformed=wrong)
        case Text(text) | Thinking(text):
            return block if text.isascii() else replace(block, text=encodable_text(text))
        case Opaque(json=json):
            return block if json.isascii() else replace(block, json=encodable_text(json))
        case _:
            return block


def encodable_text(text: str) -> str:
    """Return the text with halves of surrogate pairs joined, and those without the other half as question marks."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")  # halves from two pieces
        return joined.encode(errors="replace").decode()
    return text


def _is_object(text: str) -> bool:
    try:
        if len(text) < LONG:
            return isinstance(orjson.loads(text), dict)  # as strict as any provider: no NaN, no number beyond a double
        with collecting_later():  # what was made is gone before garbage is looked for
            return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def _is_call_of(block: Block, ids: set[str]) -> bool:
    if not isinstance(block, Opaque):
        return False
    facts = object_in(block.json)
    return facts.get("type") == "server_tool_use" and str(facts.get("id")) in ids


NOTICE: Final = "<background-task-completed>"
"""How every notification begins."""
MAIL_MARK: Final = "<team-message"
"""How the text begins that a model reads of mail, unless the team formats it otherwise."""


SUMMARY_MARK: Final = "<context-summary>"
"""How a summary of an older conversation begins."""

_MARKS: Final[tuple[tuple[str, TextOrigin], ...]] = ((NOTICE, "notice"), (MAIL_MARK, "mail"), (SUMMARY_MARK, "summary"))


def with_origin(block: UserContent) -> UserContent:
    """Return a text with the origin that its first characters tell, if it names none: notifiers hand on plain
    strings, and conversations of version 0.1 were stored without. Other blocks stay as they are."""
    if isinstance(block, Text) and block.origin is None:
        for mark, origin in _MARKS:
            if block.text.startswith(mark):
                return replace(block, origin=origin)
    return block


@lazy_dataclass(frozen=True, kw_only=True)
class ImportedHistory:
    """A conversation that another program has stored, as messages of ours: give `messages` to `history=`."""

    messages: tuple[Message, ...]
    """They can be sent as they are."""
    system: str
    """The system prompt, for `Agent(system=…)`: no message holds it. Empty if there was none."""
    form: str
    """The form that the messages came in."""
    dropped: tuple[str, ...]
    """The parts that no message of ours can say, each with its place: `messages[3].content[0]: a part of type 'video'`;
    empty where all was read. Ids, times and usage are not listed."""


def from_messages(messages: object, *, form: str | None = None, provider: str | None = None) -> ImportedHistory:
    """Return a conversation of another program as messages of ours.

    `messages` is a list of dicts or of an SDK's objects, a whole request that holds one, or either as JSON or as JSON
    lines. `form` is `anthropic`, `chat`, `responses`, `google`, `pydantic_ai`, `langchain`, `sharegpt` or
    `claude_code`, and told by the shape if it is left out. `provider` says whose reasoning stands in it, such as
    `deepseek` or `google:MODEL`: that goes back to nobody else.

    Raises:
        ValueError: they are of no such form, or of several; or they are damaged.
    """
    read: Callable[..., ImportedHistory] = load_function("journeyman.models.foreign_messages.forms", "read_messages")
    return read(messages, form=form, provider=provider)
