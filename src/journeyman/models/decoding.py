"""The part that all decoders have in common, and the words with which services say why a model stopped.

The words are one table for all, because gateways pass on the word of another service: what one decoder knows, all know.
A word that is not known here is given back as it is, and never taken for an end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import JsonValue

from journeyman.definition.narrowing import as_object, as_text
from journeyman.errors import ProviderError
from journeyman.model import Part, ResponseStarted, Room
from journeyman.models.sse import Event
from journeyman.models.wire import make_damage_error
from journeyman.types import JsonObject, Price, StopReason, Usage


@dataclass(slots=True, repr=False, eq=False, kw_only=True)
class Decoder(ABC):
    """A reader of one answer: it turns the answer into parts, without waiting or input of its own. Everything raises
    `ProviderError` for an answer that is damaged or an error."""

    price: Price | None = None
    """What the model costs; None leaves the cost of the answer unknown."""
    deltas: bool = True
    """False: the pieces of blocks make no parts, only the blocks."""
    room: Room = field(default_factory=Room)
    """For what the answer may hold."""
    complete: bool = field(default=False, init=False)
    """True when the last part was given."""
    _ids: set[str] = field(default_factory=set[str], init=False)
    """The ids of the calls so far: no two have the same."""
    _started: bool = field(default=False, init=False)
    _counts: dict[str, int] = field(default_factory=dict[str, int], init=False)
    """The counts that were reported so far."""

    @abstractmethod
    def parts(self, events: Iterable[Event]) -> Iterator[Part]:
        """Yield the parts that some events bring, up to the last part of the answer."""

    @abstractmethod
    def document(self, data: bytes) -> Sequence[Part]:
        """Return the parts of an answer that came in one piece."""

    def end(self) -> Sequence[Part]:
        """Return the last parts, once the events have ended.

        Raises:
            ProviderError: the answer was not complete.
        """
        if not self.complete:
            raise make_damage_error("it ended before it was complete" if self._started else "it is empty")
        return ()

    def usage(self) -> Usage | None:
        """Return the usage that the answer has reported so far, with its cost; None before it has reported any."""
        usage = self._reported_usage()
        return usage if usage is None or self.price is None else self.price.charged(usage)

    def _reported_usage(self) -> Usage | None:
        """Return the usage so far, as it was reported."""
        is_exact = {"input_tokens", "output_tokens"} <= self._counts.keys()
        return Usage(requests=1, exact=is_exact, **self._counts) if self._counts else None

    def _take_counts(self, table: Sequence[tuple[str, str, str]], usage: JsonObject) -> bool:
        """Take over the counts, which are totals so far: later ones replace, those left out stand. False for none.

        `table`: for each field of `Usage`, the object within the provider's that has it (empty: itself), and its name
        there.
        """
        found: dict[str, int] = {}
        for own, holder, name in table:
            count = (as_object(usage.get(holder)) if holder else usage).get(name)
            if isinstance(count, int):
                found[own] = count
        self._counts |= found
        return bool(found)

    @abstractmethod
    def unfinished_text(self) -> str:
        """Return the text that no part has told yet, of an answer that breaks off here (`read_unfinished_text`)."""

    def _begin(self, model: JsonValue, id: JsonValue) -> ResponseStarted:
        """Take note that the answer begins, and return the part that says so."""
        self._started = True
        return ResponseStarted(as_text(model), as_text(id), self.usage() or Usage(requests=1, exact=False))

    def _check_begun(self) -> None:
        """Raise if something comes that only an answer has which has begun."""
        if not self._started:
            raise make_damage_error("it has no beginning")


_WORDS: Final[Mapping[StopReason, str]] = {
    "end_turn": "end_turn stop eos eos_token complete completed",
    "tool_use": "tool_use tool_calls tool_call function_call",
    "stop_sequence": "stop_sequence",
    "max_tokens": "max_tokens max_output_tokens length max_length",
    "pause_turn": "pause_turn",
    "refusal": "refusal content_filter content_filtered guardrail_intervened sensitive error_toxic"
    " safety model_armor recitation blocklist prohibited_content spii language escalation pup_limited_disabled"
    " image_safety image_prohibited_content image_recitation",
    "context_window": "model_context_window_exceeded model_length context_window context_length_exceeded error_limit",
}
_REASONS: Final[Mapping[str, StopReason]] = {word: reason for reason, words in _WORDS.items() for word in words.split()}
_FAULTS: Final = frozenset(
    ("error", "network_error", "insufficient_system_resource", "abort", "aborted", "server_error", "internal_error")
)
"""Of Chat Completions of Z.ai and DeepSeek, of Cohere, and of vLLM and SGLang when a worker gives up."""


def stop_of(word: str, *, has_calls: bool) -> tuple[StopReason, str | None]:
    """Return why the model stopped, and the word itself where that says more.

    Where the model stopped by itself, what it made says more than the word: some services say `stop` for a call.

    Raises:
        ProviderError: the word tells of a fault of the service that may pass (`overloaded`).
    """
    known = word.lower().replace("-", "_")
    if known in _FAULTS:
        raise ProviderError(
            f"The answer broke off: the service stopped it with {word!r}.", kind="overloaded", type=word
        )
    reason: StopReason = _REASONS.get(known, "other")
    if reason in ("end_turn", "tool_use"):
        return ("tool_use" if has_calls else "end_turn"), None
    return reason, word if reason == "other" or (reason == "refusal" and known != reason) else None
