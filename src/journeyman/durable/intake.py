"""The intake of a run that is driven takes what people and other runs send to it, and notes what becomes of that."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from journeyman.chat.writer import TurnLife
from journeyman.durable.children import SignalPost
from journeyman.durable.journal import Lease
from journeyman.events import SignalTaken
from journeyman.events.noted import SignalOutcome
from journeyman.inbox.inbox import Inbox, Receipt
from journeyman.inbox.signals import Signal
from journeyman.journal import RecordingSink

_log = logging.getLogger("journeyman")


class Intake:
    """The signals that have come for a run in one of its lives."""

    def __init__(
        self, life: Lease, agent: str, inbox: Inbox, *, tape: RecordingSink | None, turn: TurnLife | None
    ) -> None:
        """`tape` records what becomes of them; `turn` is what the run is in its chat, if it is a turn."""
        self.seen: Final[set[int]] = set()
        """The numbers of the signals that have come."""
        self.post: Final = SignalPost()
        """The post brings the run the texts of other runs."""
        self.is_let_go = False
        """True when the run is a member of a team that is to end after its turn."""
        self._life, self._agent, self._inbox = life, agent, inbox
        self._tape, self._turn = tape, turn
        self._texts: dict[int, tuple[Signal, Receipt]] = {}
        """The texts that the run has not heard yet, by the number of their signal."""
        self._answers: list[Signal] = []

    def take(self, signal: Signal) -> bool:
        """Take a signal in hand. False: it is in hand already, since signals come from several looks at once."""
        if signal.n in self.seen:
            return False
        self.seen.add(signal.n)
        self._note(signal, None)
        is_new = signal.n not in self._life.used_up
        match signal.kind:
            case "steer" if is_new:
                text = signal.body.get("text")
                if isinstance(text, str) and text.strip():
                    self._texts[signal.n] = signal, self._inbox.put(text, "steering", is_kept=True)
                else:
                    what = "What %s has sent to the run %s is not a text, so the run is not told."
                    _log.warning(what, signal.who, signal.run)
            case "approve" | "answer":
                self._answers.append(signal)
            case "task_ended" | "mail":
                self.is_let_go = self.is_let_go or bool(signal.body.get("ends"))
                self.post.put(signal, is_new=is_new)
            case _:
                pass
        return True

    def take_heard(self) -> list[int]:
        """Return the numbers of the signals that what was just said has taken, once."""
        heard = [n for n, (_, receipt) in self._texts.items() if receipt.status == "delivered"]
        for n in heard:
            self._note(self._texts.pop(n)[0], "taken")
        # Numbers below zero are those of texts that wait in the session of a chat: the two kinds are counted apart.
        delivered = () if self._turn is None else self._turn.writer.list_delivered()
        return [*heard, *[-n for n in delivered if -n not in self._life.used_up], *self.post.taken()]

    def take_out(self) -> None:
        """Take what was said and is not heard yet out of the inbox."""
        self._inbox.take_out([receipt for _, receipt in self._texts.values()])

    def list_unsaid(self) -> list[tuple[Signal, Receipt]]:
        """Return what still waits to be said to the run."""
        return [each for each in self._texts.values() if each[1].status == "queued"]

    def tell_late(self, unsaid: Sequence[tuple[Signal, Receipt]]) -> None:
        """Say which signals were taken, and too late for the run; `unsaid` are those with a text."""
        if self._turn is None:
            for signal, _ in unsaid:
                self.note_late(signal, "the run already had its answer")
        else:
            self._turn.has_late_texts = bool(unsaid)
            self.take_out()  # they wait in the session
        # It is an answer that came to nothing, and whoever gave it has to learn that.
        for signal in self._answers:
            if signal.n not in self._life.used_up:
                self.note_late(signal, "nothing waited for it any more")

    def note_late(self, signal: Signal, why: str) -> None:
        """Say that a signal was taken and came too late."""
        self._note(signal, "late", why)
        text = signal.body.get("text")
        said = repr(text) if isinstance(text, str) else f"{signal.kind} by {signal.who}"
        _log.warning("%s: %s came too late: %s", self._agent, said, why)

    def _note(self, signal: Signal, outcome: SignalOutcome | None, why: str = "") -> None:
        """Take down what became of a signal that people have sent; None: it has come, for the first time."""
        is_known = outcome is None and signal.n in self._life.used_up
        outcome = outcome or ("waits" if signal.kind == "steer" else "taken")
        if self._tape is not None and not is_known and signal.kind not in ("mail", "task_ended"):
            self._tape.hear(
                SignalTaken(
                    path=(self._agent,),
                    signal=signal.n,
                    what=signal.kind,
                    who=signal.who,
                    outcome=outcome,
                    id=signal.dedup,
                    text=signal.text,
                    why=why,
                )
            )
