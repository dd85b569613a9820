"""A mailbox: where mail waits for one member of a team, until it is said in the member's conversation.

Many write, one reads, first in first out. Mail leaves a mailbox in one of two ways: it is handed over, which is told as
delivered in the same step, or it is taken out as leftovers when the member is gone. Nothing else removes it, so none is
lost and none is read twice. A chat says it through its `Inbox`, to which a mailbox is a `Post`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from html import escape
from typing import Final, TypeAlias, TypeVar

from journeyman.cancellation import is_failure
from journeyman.definition.data import lazy_dataclass
from journeyman.errors import TeamError
from journeyman.events import TeamMessage
from journeyman.history import MAIL_MARK
from journeyman.inbox.inbox import Post

T = TypeVar("T")

Claim: TypeAlias = Callable[[str], str | Awaitable[str | None] | None]
"""Gives an idle member its next task, as a text; None: there is none."""


# `*+` gives nothing back, so a long row of blanks is read once.
_MARK: Final = re.compile(r"<(?=\s*+(?:/\s*+)?team-message)", re.IGNORECASE)


def text_of_mail(mail: TeamMessage) -> str:
    """Return mail as a model reads it: nothing in it can be taken for the mark around it.

    The first task of a member, which has no id, stays as its leader wrote it, except for that mark.
    """
    facts = {"from": mail.sender, "id": mail.id, "summary": mail.summary}
    facts |= {} if mail.kind == "message" else {"kind": mail.kind}
    marks = "".join([f' {name}="{escape(value)}"' for name, value in facts.items() if value])
    text = escape(mail.text, quote=False) if mail.id else _MARK.sub("&lt;", mail.text)
    return f"{MAIL_MARK}{marks}>\n{text}\n</team-message>"


def idle_notice(name: str, text: str) -> str:
    """Return what the leader reads when a member has nothing left to do: its last words."""
    return text or f"{name} has nothing left to do."


@lazy_dataclass(frozen=True, kw_only=True)
class TeamHooks:
    """The functions by which a host changes how the members of a team read their mail and find work.

    If a hook raises, the error is recorded, and the team goes on as if the hook were None."""

    format: Callable[[TeamMessage], str] = text_of_mail
    """Makes the text in which a model reads mail and its first task. Mail never counts as the user's words. The mark
    that `text_of_mail` makes says the same of the first task; without the mark, the task is as trusted as the run that
    wrote it. A blank text counts as an error."""
    pick: Callable[[Sequence[TeamMessage]], Sequence[TeamMessage]] | None = None
    """Chooses which of the waiting mail is read now, and in which order; the rest waits. None: all mail is read in the
    order in which it came."""
    ends: Callable[[TeamMessage], bool] | None = None
    """Tells for mail that is about to be read whether the member must end instead of taking another turn."""
    claim: Claim | None = None
    """Gives the member of that name work when no mail waits: a turn begins with this text, unchanged. None or an empty
    text: there is no work."""
    claim_interval_s: float | None = None
    """After how many seconds `claim` is asked again while there is nothing to do. None: only when a turn has ended."""
    idle_notice: Callable[[str, str], str] | None = idle_notice
    """Makes the text that the leader reads when a member has nothing left to do, from the member's name and last words.
    None, or an empty text: the leader reads nothing."""


def call_hook(hook: str, call: Callable[[], T], otherwise: T, *, failed: Callable[[str, BaseException], None]) -> T:
    """Return what a hook gives. If it fails, tell `failed`, and return `otherwise`."""
    try:
        return call()
    except BaseException as error:
        if not is_failure(error):
            raise
        failed(hook, error)
        return otherwise


class Waiters:
    """Those who wait for something to change."""

    def __init__(self) -> None:
        self._change = asyncio.Event()

    def wake(self) -> None:
        """Wake all of them."""
        change, self._change = self._change, asyncio.Event()
        change.set()

    async def wait(self) -> None:
        """Wait until the next change."""
        await self._change.wait()


class MailboxClosed(TeamError):
    """The mailbox takes no more mail."""


class Mailbox(Post):
    """The mail of one member, or of the leader."""

    def __init__(
        self,
        hooks: TeamHooks,
        *,
        delivered: Callable[[Sequence[TeamMessage]], None],
        failed: Callable[[str, BaseException], None],
    ) -> None:
        """`delivered` is told what was handed over; `failed`, which hook raised what."""
        self._hooks: Final = hooks
        self._delivered = delivered
        self._failed = failed
        self._waiting: list[TeamMessage] = []
        self._in_hand: list[TeamMessage] = []
        """What a run is about to begin with."""
        self._has_begun = False
        """True from when a run has begun with mail until its first model call."""
        self._waiters = Waiters()
        self.n_arrived = 0
        """How much mail has come so far."""
        self.is_closed = False
        """True when no more is taken."""
        self.is_ending = False
        """True when no further turn shall begin."""

    def put(self, mail: TeamMessage) -> None:
        """Let mail wait, or raise `MailboxClosed` if nobody will read it."""
        if self.is_closed:
            raise MailboxClosed(f"The mailbox of {mail.to!r} is closed. Nothing was sent.")
        self._waiting.append(mail)
        self.n_arrived += 1
        self._waiters.wake()

    def end(self) -> None:
        """Let no further turn begin."""
        self.is_ending = True
        self._waiters.wake()

    def close(self) -> None:
        """Take no more mail. What waits can still be read. A second call changes nothing."""
        self.is_closed = True
        self._waiters.wake()

    @property
    def has_mail(self) -> bool:
        return bool(self._waiting)

    @property
    def waiting(self) -> tuple[TeamMessage, ...]:
        """The mail that waits, oldest first; that with which a run is about to begin comes before the rest."""
        return (*self._in_hand, *self._waiting)

    def take(self) -> tuple[str, ...]:
        begins, self._has_begun = self._has_begun, False
        if begins and self._hooks.pick is not None:
            return ()  # the run has begun with what was picked: the rest is for a later model call
        self._choose()
        texts = self.hand_over()
        self._has_begun = False
        return texts

    def pick_up(self) -> bool:
        if not self.is_ending and not self._in_hand:
            self._choose()
        # Mail that ends the member may have been among it.
        if self.is_ending:
            self.put_back()
        return bool(self._in_hand)

    def hand_over(self) -> tuple[str, ...]:
        self._has_begun = True
        texts = tuple([self.text_of(mail) for mail in self._in_hand])
        # First, since whoever is told may look at what waits.
        handed, self._in_hand = self._in_hand, []
        if handed:
            self._delivered(handed)
        return texts

    def put_back(self) -> None:
        self._waiting[:0] = self._in_hand
        self._in_hand = []

    def text_of(self, mail: TeamMessage) -> str:
        """Return what a model reads of mail."""
        try:
            text = self._hooks.format(mail)
            if not isinstance(text, str) or not text.strip():  # pyright: ignore[reportUnnecessaryIsInstance] - users' code may not be typed
                raise TypeError(f"TeamHooks.format gave {text!r} for mail. Let it return a text that is not blank.")
        except Exception as error:  # noqa: BLE001 - whatever the user's hook raises
            self._failed("format", error)
            return text_of_mail(mail)
        return text

    def _choose(self) -> None:
        """Take in hand what is to be read now, up to what ends the member: that counts as read."""
        if not self._waiting:
            return
        if self._hooks.pick is None and self._hooks.ends is None:
            self._in_hand += self._waiting
            self._waiting = []
            return
        for mail in self._pick():
            self._waiting.remove(mail)
            if self._ends(mail):
                self.is_ending = True
                self._delivered([mail])
                return
            self._in_hand.append(mail)

    def _pick(self) -> Sequence[TeamMessage]:
        waiting, pick = tuple(self._waiting), self._hooks.pick
        if pick is None:
            return waiting
        known = {mail.id: mail for mail in waiting}
        ids = call_hook("pick", lambda: [mail.id for mail in pick(waiting)], list(known), failed=self._failed)
        # Each once, and only what waits: a hook may return anything.
        return [known[id] for id in dict.fromkeys(ids) if id in known]

    def _ends(self, mail: TeamMessage) -> bool:
        ends = self._hooks.ends
        # It asks for last words, which could not be said if it ended the member.
        if ends is None or mail.kind == "shutdown":
            return False
        return call_hook("ends", lambda: ends(mail), False, failed=self._failed)

    def drain(self) -> tuple[TeamMessage, ...]:
        """Take all mail, or none if there is none. It counts as delivered."""
        drained = self.leftovers()
        if drained:
            self._delivered(drained)
        return drained

    def leftovers(self) -> tuple[TeamMessage, ...]:
        """Take out what nobody will read. It was not delivered."""
        removed = self.waiting
        self._waiting, self._in_hand = [], []
        return removed

    async def wait(self, timeout_s: float | None = None, *, after: int | None = None) -> None:
        """Wait until mail waits; with `after`, until more has come than that; or until no further turn shall begin.

        Raises:
            MailboxClosed: it is closed, and none waits.
            TimeoutError: `timeout_s` seconds have passed.
        """
        async with asyncio.timeout(timeout_s):
            while not (self.is_ending or (self._waiting and (after is None or self.n_arrived > after))):
                if self.is_closed:
                    raise MailboxClosed("The mailbox is closed, and empty: no mail will come.")
                await self._waiters.wait()
