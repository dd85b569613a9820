"""The post of a team: it takes mail, finds its mailbox, tells what becomes of it, and keeps what cannot be delivered.

All of it happens at once, in the thread of the event loop; what another thread sends, in the next step there. The post
also lets members go: it asks them first, then stops them, then leaves them behind, so that this ends in bounded time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import count
from threading import Lock
from typing import Final

from journeyman.cancellation import call_in, within
from journeyman.definition.data import lazy_dataclass
from journeyman.errors import TeamError
from journeyman.events import (
    DeadLetter,
    DeadLetterReason,
    MailDelivered,
    MailKind,
    MailReturned,
    MailSent,
    MemberChanged,
    MemberStatus,
    TeamMessage,
)
from journeyman.inbox.inbox import current_conversation
from journeyman.loop.watch import Watch
from journeyman.team.mail import Mailbox, TeamHooks, Waiters
from journeyman.team.members import LEADER, Member, Registry, find_addressees
from journeyman.types import RunPath

REMEMBERED_IDS: Final = 10_000
"""How many ids of mail are kept to know it when it is sent again. It bounds the memory of a team that lives for
long."""


class PostOffice:
    """The mail of one team, and who hears of it."""

    def __init__(
        self, hooks: TeamHooks, watch: Watch, *, name: str, description: str, remembered_ids: int = REMEMBERED_IDS
    ) -> None:
        self.hooks: Final = hooks
        self.watch: Final = watch
        """Who hears of the team: its listeners, and those who watch the chat that leads it."""
        self.path: RunPath = ()
        """The run that leads the team; empty where a program does."""
        self.registry: Final = Registry(name, description, self.mailbox(LEADER))
        self.dead_letters: Final[list[DeadLetter]] = []
        self._sent_ids: dict[str, None] = {}
        self._remembered_ids = remembered_ids
        self._numbers = count(1)
        # Any thread may send, and of two with one id only one may be first.
        self._id_lock: Final = Lock()
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop of the team; None before it is opened."""
        self.changes: Final = Waiters()
        """Those who wait for a change in the team."""

    def sender(self) -> Member | None:
        """Return the member of this team whose turn goes on here. None: it is the leader's, or a program."""
        member = current_conversation.get().member
        return member if isinstance(member, Member) and member.registry is self.registry else None

    def send(
        self,
        sender: Member | None,
        to: str,
        text: str,
        *,
        summary: str = "",
        id: str = "",
        incarnation: int | None = None,
        kind: MailKind = "message",
    ) -> tuple[TeamMessage, ...]:
        """Send mail, and return what is on its way; a `TeamError` says why nothing is. Any thread may.

        `sender` None is the leader. What has an `id` is sent once.
        """
        registry, own = self.registry, LEADER if sender is None else sender.name
        registry.check_open()
        if sender is not None and sender.liveness == "gone":
            raise TeamError(f"{own!r} has ended, and sends no more mail.")
        alive = (name for name in registry.last if registry.alive(name))  # nobody looks at it for mail to one member
        addressees = find_addressees(own, to, text, alive=alive, known=registry.last)
        mail = [
            TeamMessage(
                # Mail to all is one letter to each, and each has an id of its own.
                id=(id and f"{id}:{name}") or f"m-{next(self._numbers)}",
                sender=own,
                to=name,
                text=text,
                summary=summary,
                kind=kind,
                # Of the one that has the name now: a later member does not get it.
                incarnation=registry.n_of.get(name, 0) if incarnation is None else incarnation,
                sent=datetime.now(UTC),
            )
            for name in addressees
        ]
        new = [each for each in mail if self.is_new(each.id)]
        on_its_way = tuple([each for each in new if isinstance(self._box_of(each), Mailbox)])
        for each in new:
            dispatch = partial(self._dispatch, sender, each)
            # Mailboxes and listeners belong to the thread of the loop.
            dispatch() if self.loop is None else call_in(self.loop, dispatch)
        return on_its_way

    def is_new(self, id: str) -> bool:
        """Note the id of mail. False: it was noted before, so that mail was sent."""
        with self._id_lock:
            if id in self._sent_ids:
                return False
            self._sent_ids[id] = None
            if len(self._sent_ids) > self._remembered_ids:
                # The oldest one: a dict keeps its order.
                del self._sent_ids[next(iter(self._sent_ids))]
            return True

    def _dispatch(self, sender: Member | None, mail: TeamMessage) -> None:
        """Put mail where it will be read. Where nobody will, it is a dead letter."""
        if sender is not None:
            sender.sign()
        if self.watch.is_followed:
            self.watch.show(MailSent(path=self.path if sender is None else sender.path, mail=mail))
        box = self._box_of(mail)
        if isinstance(box, Mailbox):
            box.put(mail)
            self.changes.wake()
        else:
            self.bury([mail], box)

    def _box_of(self, mail: TeamMessage) -> Mailbox | DeadLetterReason:
        if mail.to == LEADER:
            return "closed" if self.registry.leader.is_closed else self.registry.leader
        member = self.registry.last.get(mail.to)
        if member is None or member.incarnation != mail.incarnation:
            return "stale"
        return "gone" if member.box.is_closed else member.box

    def mailbox(self, name: str) -> Mailbox:
        """Return a mailbox for whoever has that name."""
        return Mailbox(self.hooks, delivered=lambda mail: self._note_delivered(name, mail), failed=self.regret)

    def _note_delivered(self, name: str, mail: Sequence[TeamMessage]) -> None:
        member = self.registry.alive(name)
        if member is not None:
            member.sign()
        if self.watch.is_followed:
            path = self.path if member is None else member.path
            for each in mail:
                self.watch.show(MailDelivered(path=path, mail=each))

    def bury(self, mail: Sequence[TeamMessage], reason: DeadLetterReason) -> None:
        """Make dead letters of mail that nobody will read."""
        for each in mail:
            letter = DeadLetter(mail=each, reason=reason, at=datetime.now(UTC))
            self.dead_letters.append(letter)
            self.watch.show(MailReturned(path=self.path, letter=letter))

    def regret(self, hook: str, error: BaseException) -> None:
        """Remember and log what a hook raised."""
        self.watch.regret("hook of the team", hook, error)

    def change(self, member: Member, liveness: MemberStatus) -> bool:
        """Let a member do something else, and tell. False: it does that already, or is about to end."""
        member.sign()
        # A new member is told of once, though it is in this state from the start.
        is_same = member.liveness == liveness and member.is_announced
        # A member that was asked to end is not working or idle again, whatever its turn tells.
        if is_same or member.liveness == "gone" or (member.liveness == "stopping" and liveness != "gone"):
            return False
        member.liveness, member.is_announced = liveness, True
        if member.task is not None:
            member.task.sign(liveness)
        self.changes.wake()
        if self.watch.is_followed:
            self.watch.show(
                MemberChanged(
                    path=member.path,
                    team=self.registry.name,
                    name=member.name,
                    incarnation=member.incarnation,
                    liveness=liveness,
                    at=datetime.now(UTC),
                    error=member.error,
                )
            )
        return True

    def part(self, member: Member, error: str | None = None) -> None:
        """Let a member go: its name is free, and what it has not read is dead letters. Once is enough."""
        if self.registry.alive(member.name) is not member:
            return
        member.error = error
        left = member.box.leftovers()
        self._note_delivered(
            member.name, [mail for mail in left if mail.kind == "shutdown"]
        )  # it did what it was asked
        # Nothing comes behind what was taken out above, and the name is free from now on.
        member.box.close()
        was_asked = member.liveness == "stopping"
        self.change(member, "gone")
        self.bury([mail for mail in left if mail.kind != "shutdown"], "unread")
        # Whoever asked it to end waits for that, and needs no mail about it.
        if not was_asked and not self.registry.is_deleted:
            was_stopped = member.task is None or member.task.abort.aborted
            text = error or f"{member.name} {'was stopped' if was_stopped else 'has ended'}."
            id, now = f"m-{next(self._numbers)}", datetime.now(UTC)
            self._dispatch(member, TeamMessage(id=id, sender=member.name, to=LEADER, text=text, kind="gone", sent=now))

    def ask_to_end(self, member: Member, grace_s: float) -> None:
        """Let a member begin no further turn; if it works, and has some seconds to end, tell it so."""
        was_working = member.liveness == "working"
        member.box.end()
        self.change(member, "stopping")
        # Without a grace, it would be stopped before it could read this.
        if was_working and grace_s > 0:
            seconds = "second" if grace_s == 1 else "seconds"
            text = f"Please finish: you will be stopped in {grace_s:g} {seconds}. Your last words are kept."
            self.send(None, member.name, text, kind="shutdown", incarnation=member.incarnation)

    async def wait_until_gone(self, members: Sequence[Member], seconds: float) -> Sequence[Member]:
        """Wait until all of them are gone, but not longer than so many seconds; return those that are not."""

        async def wait_for_all() -> None:
            while any(member.liveness != "gone" for member in members):
                await self.changes.wait()

        await within(max(0.0, seconds), wait_for_all())
        return [member for member in members if member.liveness != "gone"]


@lazy_dataclass(frozen=True, kw_only=True)
class ShutdownResult:
    """The names of the members that were let go, by how they ended."""

    finished: tuple[str, ...] = ()
    """Members that ended by themselves, within the grace."""
    stopped: tuple[str, ...] = ()
    """Members that were stopped, and ended."""
    abandoned: tuple[str, ...] = ()
    """Members that were stopped and do not end. They are out of the team anyway, and nobody waits for them."""
