"""The part of a conversation that is sent: the view, the strategies that shorten it, and the size of things in tokens.

The history is never shortened. Without strategies all of it is sent. With strategies, a *view* of it is sent, which
stays the same from request to request and, in a chat, from run to run: it only grows at its end until the next
compaction, so that providers' caches hold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, replace
from typing import Final, Protocol, TypeAlias, runtime_checkable

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.problems import Kind, field_problems, is_count, none_or, raise_problems
from journeyman.model import Model, Prefix, Request, Response, facts_of
from journeyman.types import (
    NOTHING_USED,
    Audio,
    Base64,
    Block,
    Document,
    Image,
    Message,
    Opaque,
    RedactedThinking,
    Text,
    Thinking,
    ToolReference,
    ToolResult,
    ToolUse,
    Url,
    Usage,
)

__all__ = ["AnyStrategy", "Informed", "Shortened", "Strategy"]

_BLOCK_TOKENS = 8  # for the JSON around a block: its type, its ids
# Services count a picture by its pixels, which nobody reads here: Anthropic a token for each 750, up to some 1,600.
_PICTURE_TOKENS = 1_200
# At Google's 32 tokens a second, Base64 of a recording at 115 kbit/s.
_SOUND_CHARS_PER_TOKEN = 600
_THINKING = (Thinking, RedactedThinking)
# The room for the answer that compaction leaves: a share of the window, within these bounds.
LEAST_RESERVE_TOKENS: Final = 4_096
MOST_RESERVE_TOKENS: Final = 16_384
_RESERVED_SHARE: Final = 0.13


@lazy_dataclass(frozen=True, kw_only=True)
class Shortened:
    """The messages to send."""

    messages: Sequence[Message]
    """What is sent instead."""
    changed: bool = False
    """True when they are not the ones that were given."""


class Strategy(Protocol):
    """A way to make a conversation fit the model's window."""

    @property
    def name(self) -> str: ...

    async def view(self, messages: Sequence[Message], *, excess_tokens: int) -> Shortened:
        """Return a view at least `excess_tokens` smaller, if it can.

        A strategy must never part a call from its result, and must leave the open turn as it is: the last message and,
        if that holds results, their calls. A view that breaks this rule is not used, and a strategy that raises is
        skipped.
        """
        ...


@lazy_dataclass(frozen=True, kw_only=True)
class Situation:
    """The circumstances of one compaction, for a strategy that needs more than the messages."""

    model: Model
    """The run's."""
    threshold_tokens: int
    """How many tokens the conversation may have."""
    is_threshold_known: bool = False
    """False: nobody has told how long it may be, and `threshold_tokens` is a guess."""
    memory: dict[str, object]
    """The strategy's own memory, which lives as long as the conversation."""
    ask: Callable[[Model, Request], Awaitable[Response]]
    """Makes a model call within the run's budget, counted as the run's.

    Raises `ProviderError`, or `BudgetRefused`.
    """
    history: Sequence[Message] = ()
    """The whole conversation as it was said, including what strategies have cleared or cut."""


@runtime_checkable
class Informed(Protocol):
    """A strategy that asks a model or remembers something. It holds no state itself, so runs may share it."""

    @property
    def name(self) -> str: ...

    def informed(self, situation: Situation) -> Strategy:
        """Return the strategy for one compaction of one conversation."""
        ...


AnyStrategy: TypeAlias = Strategy | Informed
"""A strategy of compaction, also one that asks a model or remembers something."""


@lazy_dataclass(frozen=True)
class Compaction:
    """Strategies, and the length at which they are asked. `Agent.compaction` takes it in place of the strategies.

    Raises:
        DefinitionError: a number of tokens is below 1.
    """

    strategies: Sequence[AnyStrategy] = ()
    """What is tried, in order."""
    _: KW_ONLY
    reserve_tokens: int | None = None
    """How many tokens of the window stay free. None: 13% of it, at least 4,096 and at most 16,384 tokens, but never
    less than `ModelSettings.max_tokens`, if that is given. It is never more than half of the window."""
    window_tokens: int | None = None
    """The size of the window. None: the model's window, if that is known; otherwise the provider has to say when it is
    full."""
    transform_messages: Callable[[Sequence[Message]], Sequence[Message]] | None = None
    """Changes the messages of each request, after the strategies. The history stays as it is."""

    def __post_init__(self) -> None:
        # A copy: a list of the caller's could change during the run.
        object.__setattr__(self, "strategies", tuple(self.strategies))
        size: Kind = (none_or(is_count), "Give a number of tokens of at least 1, or leave it out.")
        sizes = {"reserve_tokens": size, "window_tokens": size}
        raise_problems("The compaction", field_problems("INVALID_COMPACTION", "", self, sizes))

    def window_of(self, model: Model) -> int | None:
        """Return the window of a run with `model`, in tokens."""
        return facts_of(model).context_window if self.window_tokens is None else self.window_tokens

    def threshold_tokens(self, window: int, *, max_tokens: int | None) -> int:
        """Return how long a conversation may be; `max_tokens` is the answer that was asked for by name, if any."""
        reserve = self.reserve_tokens
        if reserve is None:
            share = int(window * _RESERVED_SHARE)
            reserve = max(max_tokens or 0, min(max(share, LEAST_RESERVE_TOKENS), MOST_RESERVE_TOKENS))
        # Half at most: a small model's longest answer may be as long as its window, and nothing could be sent.
        return window - min(reserve, window // 2)


def has_results(message: Message) -> bool:
    """Tell whether the message answers calls. What a user says without being called is a *prompt*."""
    # The first block tells: results stand in front of anything else, or providers refuse the message.
    return bool(message.content) and isinstance(message.content[0], ToolResult)


def open_turn(messages: Sequence[Message]) -> int:
    """Return where the open turn begins: at the last prompt, or at the last calls whose results come last."""
    start = len(messages) - 1
    if start >= 0 and has_results(messages[start]):
        start -= 1
    while start > 0 and messages[start].role == messages[start - 1].role == "assistant":
        start -= 1
    return max(start, 0)


OLDEST_DROPPED: Final = "[Older turns of this conversation were left out to save room.]"
"""What a model reads in the place of turns that were dropped."""


@lazy_dataclass(frozen=True, kw_only=True)
class DropOldestTurns:
    """A strategy that leaves out the oldest turns: whole, from their prompt to the next one, and never the last.

    It is no strategy that an agent is given, but the last resort where those that it has are not enough: a summary
    fails, or the window is too small for one. A summary that stands in a dropped turn stays.
    """

    summary_mark: str
    """How a summary begins."""

    name = "drop the oldest turns"
    """What it is called in events."""

    async def view(self, messages: Sequence[Message], *, excess_tokens: int) -> Shortened:
        """Leave out as many turns as it takes."""
        prompts = [index for index, each in enumerate(messages) if each.role == "user" and not has_results(each)]
        start, saved = 0, 0
        for prompt in prompts[1:]:
            if saved >= excess_tokens:
                break
            saved += sum(map(estimate_message, messages[start:prompt]))
            start = prompt
        if not start:
            return Shortened(messages=messages)
        known = [
            block
            for message in messages[:start]
            for block in message.content
            if isinstance(block, Text) and block.text.startswith(self.summary_mark)
        ]
        first, *rest = messages[start:]
        head = (*known[-1:], Text(OLDEST_DROPPED, origin="summary"))
        return Shortened(messages=[replace(first, content=(*head, *first.content)), *rest], changed=True)


def fault_of_view(before: Sequence[Message], after: Sequence[Message]) -> str | None:
    """Return why `after` may not be sent in place of `before`; None if it may."""
    start = open_turn(before)
    kept = after[start - len(before) :] if before else after
    if len(kept) != len(before) - start or not all(map(_ends_with, kept, before[start:])):
        return "it changes the open turn"
    if after and before[0].role != after[0].role == "assistant":
        return "it begins with the assistant"
    return _pairing_fault(after)


def _ends_with(message: Message, ending: Message) -> bool:
    if message is ending:
        return True
    if has_results(ending) or ending.role == "assistant":
        return message == ending
    return message.role == "user" and message.content[-len(ending.content) :] == ending.content


def _pairing_fault(messages: Sequence[Message]) -> str | None:
    calls: list[str] = []
    for index, message in enumerate(messages):
        if not message.content:
            return f"its message {index} is empty"
        results = [block.tool_use_id for block in message.content if isinstance(block, ToolResult)]
        if results != calls or not all(isinstance(block, ToolResult) for block in message.content[: len(calls)]):
            return f"its message {index} answers the calls {results} in place of {calls}"
        calls = [use.id for use in message.tool_uses]
    return None  # the last is of the open turn, which nobody changed


def without_stale_thinking(before: Sequence[Message], after: Sequence[Message]) -> list[Message]:
    """Return `after` without the reasoning that follows its first difference from `before`.

    Providers bind reasoning to all that was said before it, and refuse what comes back elsewhere.
    """
    same = 0
    while same < min(len(before), len(after)) and (before[same] is after[same] or before[same] == after[same]):
        same += 1
    return [*after[:same], *[_without_thinking(message) for message in after[same:]]]


def _without_thinking(message: Message) -> Message:
    if message.role != "assistant" or not any(isinstance(block, _THINKING) for block in message.content):
        return message
    content = tuple(block for block in message.content if not isinstance(block, _THINKING))
    # Not nothing: an empty message is refused by every provider.
    return replace(message, content=content or (Text("(nothing said)"),))


def estimate_text(text: str) -> int:
    """Return about how many tokens `text` is: a quarter of its UTF-8 bytes, at least 1."""
    # Bytes, since a Chinese character is three of them and about a token by itself. Half a surrogate pair must not
    # raise.
    size = len(text) if text.isascii() else len(text.encode(errors="replace"))
    return max(1, (size + 3) // 4)


def estimate_message(message: Message) -> int:
    """Return about how many tokens `message` is."""
    return sum(_estimate_block(block) for block in message.content)


def estimate_prefix(prefix: Prefix) -> int:
    """Return about how many tokens the system prompt, the tools and the form of the answer are; deferred tools are not
    in the prompt."""
    system = sum(estimate_text(block.text) for block in prefix.system)
    shown = [tool for tool in prefix.tools if not tool.deferred]
    tools = sum(estimate_text(f"{tool.name}{tool.description}{tool.input_schema}") for tool in shown)
    output = estimate_text(f"{prefix.output.name}{prefix.output.schema}") if prefix.output is not None else 0
    return system + tools + output


def estimate_request(request: Request) -> int:
    """Return about how many tokens the input of `request` is."""
    return estimate_prefix(request.prefix) + sum(map(estimate_message, request.messages))


def believable_usage(usage: Usage, request: Request, words: Callable[[], str]) -> Usage:
    """Return the usage of a request: as the service reports it, or as estimated from `words`, the answer's, where the
    report cannot be true.

    Many services tell the use at the end of an answer alone, or begin with a figure that stands for nothing; some tell
    that an answer with words has no tokens.
    """
    counted_input = usage.total_tokens - usage.output_tokens
    if not usage.requests or (usage.exact and counted_input and usage.output_tokens):
        return usage
    if not (said := words()):
        return usage
    written = estimate_text(said)
    least = 1.0 if usage.exact else written / 2  # a broken answer's figure may be of its beginning
    if counted_input and usage.output_tokens >= least:
        return usage
    return replace(
        usage,
        input_tokens=usage.input_tokens if counted_input else estimate_request(request),
        output_tokens=usage.output_tokens if usage.output_tokens >= least else written,
        exact=False,
    )


def _estimate_block(block: Block | ToolReference) -> int:
    match block:
        case ToolReference():
            return _BLOCK_TOKENS  # what is loaded for it is about as long as the text beside it
        case ToolResult(content=tuple() as parts):
            return _BLOCK_TOKENS + sum(_estimate_block(part) for part in parts)
        case Image() | Document(source=Url()):
            return _PICTURE_TOKENS
        case Audio(source=Base64(data)):
            return _BLOCK_TOKENS + len(data) // _SOUND_CHARS_PER_TOKEN
        case Audio():
            return _PICTURE_TOKENS
        case _:
            return _BLOCK_TOKENS + estimate_text(_text_of_block(block))


def _text_of_block(block: Block) -> str:
    match block:
        case Text(text) | Thinking(text) | RedactedThinking(data=text) | Opaque(json=text):
            return text
        case ToolUse():
            return block.name + block.input_json
        case ToolResult():
            return block.text
        case Document(source=Base64(data)):
            return data
        case _:
            return ""


_FAILURES_AT_MOST: Final = 3  # each compaction costs model calls, or the provider's cache once
# It bounds what one odd report can do: all later views would look too long.
_RATIO_AT_MOST: Final = 4.0


class View(Protocol):
    """A view of a history: the messages of it that are sent."""

    @property
    def prefix(self) -> Prefix: ...
    @property
    def messages(self) -> Sequence[Message]: ...
    @property
    def compaction(self) -> Compaction: ...

    @property
    def tokens(self) -> int:
        """About how long the next request is: what the model reported last, and an estimate of the rest."""
        ...

    def measure(self, usage: Usage, history: Sequence[Message]) -> None:
        """Store the length that the provider reports: `usage` counts the view and its answer, which the history holds
        by now."""
        ...

    def change_prefix(self, prefix: Prefix) -> None:
        """Send another prefix from now on, in front of the same messages."""
        ...


class WholeView:
    """A view that is the whole history. Nothing is estimated before somebody asks."""

    __slots__ = ("_covered", "_reported", "compaction", "messages", "prefix")

    def __init__(self, messages: Sequence[Message], prefix: Prefix, compaction: Compaction) -> None:
        """`messages` grow as the history does; the compaction has no strategies."""
        self.messages = messages
        self.prefix = prefix
        self.compaction = compaction
        self._covered = 0
        """How many messages the last report is about."""
        self._reported = NOTHING_USED

    @property
    def tokens(self) -> int:
        """About how long the next request is. A report that is not exact, or counts no input, is ignored."""
        covered, tokens = self._covered, self._reported.total_tokens
        # Of a lower bound, or of a report without input, nothing can be inferred about the next request.
        if not (self._reported.exact and self._reported.input_tokens):
            covered, tokens = 0, estimate_prefix(self.prefix)
        return tokens + sum(estimate_message(message) for message in self.messages[covered:])

    def measure(self, usage: Usage, history: Sequence[Message]) -> None:
        """Remember what the model reported."""
        self._covered, self._reported = len(history), usage

    def change_prefix(self, prefix: Prefix) -> None:
        """Send another prefix from now on. The last report was about the old one, and is forgotten."""
        self.prefix, self._covered, self._reported = prefix, 0, NOTHING_USED


@lazy_dataclass(frozen=True, kw_only=True)
class SentView:
    """A view that a compaction made, as a session keeps it."""

    position: int
    """How many messages of the history it stands for."""
    last: Message
    """The last of these, which may have grown since."""
    messages: Sequence[Message]
    """What is sent in their place."""


class CompactedView:
    """The view that the last compaction made, and all that was said since. It belongs to one history."""

    def __init__(self, prefix: Prefix, compaction: Compaction) -> None:
        self.prefix = prefix
        self.compaction = compaction
        self.messages: list[Message] = []
        """What is sent. Grows in place; a compaction puts another list here."""
        self.memories: defaultdict[int, dict[str, object]] = defaultdict(dict[str, object])
        """What each strategy remembers, by its place in the order."""
        self.ceiling_tokens: int | None = None
        """The length that the provider has shown to be too long, if it did."""
        self._is_measured = False
        """True once the model has reported how long its requests are."""
        self._covered = 0
        """How many messages of the history the view stands for."""
        self._last: Message | None = None
        """The last of them: it may still grow, until the model answers it."""
        self._estimate = 0
        """The estimated length of the messages alone."""
        self._prefix_tokens = estimate_prefix(prefix)
        self._anchor = self._prefix_tokens
        """How long the request was when `_estimate` was `_anchored_at`."""
        self._anchored_at = 0
        self._n_failures = 0
        """Compactions in a row that saved nothing."""
        self.is_compacted = False
        """True when something else than the history is sent."""

    @property
    def tokens(self) -> int:
        """About how long the next request is."""
        return self._anchor + self._estimate - self._anchored_at

    def begin_run(self, prefix: Prefix, compaction: Compaction) -> None:
        """Continue the view with the system prompt, the tools and the strategies of another run."""
        prefix_tokens = estimate_prefix(prefix)
        self._anchor += prefix_tokens - self._prefix_tokens
        self.prefix, self.compaction, self._prefix_tokens = prefix, compaction, prefix_tokens

    def change_prefix(self, prefix: Prefix) -> None:
        """Send another prefix from now on, in front of the same messages."""
        self.begin_run(prefix, self.compaction)

    def make_sent_view(self) -> SentView | None:
        """Return the view as a session keeps it; None when the history itself is sent."""
        if self._last is None or not self.is_compacted:
            return None
        return SentView(position=self._covered, last=self._last, messages=tuple(self.messages))

    def restore(self, kept: SentView) -> None:
        """Take over the view that a session has kept."""
        self._covered, self._last = kept.position, kept.last
        self.messages, self.is_compacted = list(kept.messages), True
        self._estimate = self._anchored_at = sum(map(estimate_message, self.messages))
        self._anchor = self._prefix_tokens + self._estimate

    def follow(self, history: Sequence[Message]) -> None:
        """Add what the history has grown by."""
        # By identity: the last message may have grown since, and an equal one may stand elsewhere.
        if self._covered and not (len(history) >= self._covered and history[self._covered - 1] is self._last):
            self._catch_up(history)
        for message in history[self._covered :]:
            self.messages.append(message)
            self._estimate += estimate_message(message)
        self._covered = len(history)
        self._last = history[-1] if history else None

    def _catch_up(self, history: Sequence[Message]) -> None:
        """Take the last message as it is now; the whole history, if there is no other way."""
        last, now = self._last, history[self._covered - 1] if len(history) >= self._covered else None
        mine = self.messages[-1]
        if last is None or now is None or last.role != now.role or now.content[: len(last.content)] != last.content:
            self.messages, self._covered, self._estimate, self.is_compacted = [], 0, 0, False
            self._anchor, self._anchored_at = self._prefix_tokens, 0
            return
        grown = replace(mine, content=(*mine.content, *now.content[len(last.content) :]))
        self.messages[-1] = now if mine is last else grown
        self._estimate += estimate_message(self.messages[-1]) - estimate_message(mine)

    def measure(self, usage: Usage, history: Sequence[Message]) -> None:
        """Store the length that the provider reports: `usage` counts the view and its answer, which the history holds
        by now.

        A report of less than half of the estimate is not believed: some servers, and scripts of tests, do not count.
        """
        self.follow(history)
        if usage.exact and usage.total_tokens * 2 >= self._prefix_tokens + self._estimate:
            if not self._is_measured:  # a ceiling in estimated tokens says nothing about reported ones
                self.ceiling_tokens = None
            self._anchor, self._anchored_at, self._is_measured = usage.total_tokens, self._estimate, True

    def was_too_long(self) -> None:
        """Remember that the provider has refused the view for its length."""
        # A tenth less than what was refused: the next view has to be clearly shorter, by the same inexact measure.
        self.ceiling_tokens = self.tokens * 9 // 10

    def rewrite(self, messages: Sequence[Message]) -> None:
        """Replace the messages that are sent from now on.

        The report on the old view does not count for them; it only tells by how much the estimate was wrong.
        """
        ratio = min(self.tokens / max(1, self._prefix_tokens + self._estimate), _RATIO_AT_MOST)
        self.messages = list(messages)
        self._estimate = sum(map(estimate_message, self.messages))
        self._anchor, self._anchored_at = int((self._prefix_tokens + self._estimate) * ratio), self._estimate
        self._n_failures, self.is_compacted = 0, True

    def count_failure(self) -> None:
        """Count a compaction that saved nothing."""
        self._n_failures += 1

    def skips(self) -> bool:
        """Tell whether the next compaction is left out: one is after three failures in a row, then one is tried."""
        if self._n_failures < _FAILURES_AT_MOST:
            return False
        # The next one is tried: the conversation may have become one that can be shortened.
        self._n_failures = _FAILURES_AT_MOST - 1
        return True
