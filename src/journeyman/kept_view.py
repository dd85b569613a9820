"""What of a conversation is sent: the view that the last compaction made, and all that was said since.

The view is kept from request to request and, in a chat, from run to run. It only grows at its end until the next
compaction, so that providers' caches hold. It also knows about how many tokens it is: what the model reported of this
very view, and an estimate of what came after. Imports `window`, `model` and `types`. Read `fitting.py` next.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from journeyman.types import Message, Usage
from journeyman.window import estimate_message

_FAILURES_AT_MOST: Final = 3
_RATIO_AT_MOST: Final = 4.0


class KeptView:
    """The messages that are sent of one history."""

    __slots__ = (
        "_anchor",
        "_anchored_at",
        "_covered",
        "_estimate",
        "_is_measured",
        "_last",
        "_n_failures",
        "_prefix_tokens",
        "ceiling_tokens",
        "memories",
        "messages",
    )

    def __init__(self) -> None:
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
        """Of the messages alone."""
        self._prefix_tokens = 0
        self._anchor = 0
        """How long the request was when `_estimate` was `_anchored_at`."""
        self._anchored_at = 0
        self._n_failures = 0
        """Compactions in a row that saved nothing."""

    @property
    def tokens(self) -> int:
        """About how long the next request is."""
        return self._anchor + self._estimate - self._anchored_at

    def begin_run(self, prefix_tokens: int) -> None:
        """Take up the view with the system prompt and the tools of another run."""
        self._anchor += prefix_tokens - self._prefix_tokens
        self._prefix_tokens = prefix_tokens

    def follow(self, history: Sequence[Message]) -> None:
        """Add what the history has grown by."""
        if self._covered and not self._is_followed(history):
            self._catch_up(history)
        for message in history[self._covered :]:
            self.messages.append(message)
            self._estimate += estimate_message(message)
        self._covered = len(history)
        self._last = history[-1] if history else None

    def _is_followed(self, history: Sequence[Message]) -> bool:
        return len(history) >= self._covered and history[self._covered - 1] is self._last

    def _catch_up(self, history: Sequence[Message]) -> None:
        """Take the last message as it is now; the whole history, if there is no other way."""
        last, now = self._last, history[self._covered - 1] if len(history) >= self._covered else None
        mine = self.messages[-1]
        if last is None or now is None or last.role != now.role or now.content[: len(last.content)] != last.content:
            self.messages, self._covered, self._estimate = [], 0, 0
            self._anchor, self._anchored_at = self._prefix_tokens, 0
            return
        grown = replace(mine, content=(*mine.content, *now.content[len(last.content) :]))
        self.messages[-1] = now if mine is last else grown
        self._estimate += estimate_message(self.messages[-1]) - estimate_message(mine)

    def measure(self, usage: Usage, history: Sequence[Message]) -> None:
        """Remember how long the view is, now that the model has told: with its answer, which the history holds.

        A report of less than half of the estimate is not believed: some servers, and scripts of tests, do not count.
        """
        self.follow(history)
        if usage.exact and usage.total_tokens * 2 >= self._prefix_tokens + self._estimate:
            if not self._is_measured:  # a ceiling in estimated tokens says nothing about reported ones
                self.ceiling_tokens = None
            self._anchor, self._anchored_at, self._is_measured = usage.total_tokens, self._estimate, True

    def was_too_long(self) -> None:
        """Remember that the provider has refused the view for its length."""
        self.ceiling_tokens = self.tokens * 9 // 10

    def rewrite(self, messages: Sequence[Message]) -> None:
        """Send these from now on.

        The report on the old view does not count for them; it only tells by how much the estimate was wrong.
        """
        ratio = min(self.tokens / max(1, self._prefix_tokens + self._estimate), _RATIO_AT_MOST)
        self.messages = list(messages)
        self._estimate = sum(map(estimate_message, self.messages))
        self._anchor, self._anchored_at = int((self._prefix_tokens + self._estimate) * ratio), self._estimate
        self._n_failures = 0

    # -- the breaker

    def failed(self) -> None:
        """Count a compaction that saved nothing."""
        self._n_failures += 1

    def skips(self) -> bool:
        """Tell whether the next compaction is left out: one is after three failures in a row, then one is tried."""
        if self._n_failures < _FAILURES_AT_MOST:
            return False
        self._n_failures = _FAILURES_AT_MOST - 1
        return True
