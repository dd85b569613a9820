"""What the runs of one chat share: the conversation, what all of them have used, and the session that keeps both.

What is new is written to the session before anything comes of it. A step is everything that changed since the last
one: messages, staged results, texts that were said or withdrawn, and usage. So no text is both in a queue and in the
conversation, or in neither. A step that could not be written is part of the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from threading import RLock
from typing import Any, Final

from journeyman.agent import NOTHING_AROUND, Agent, Host
from journeyman.chat.questions import Questions, current_questions
from journeyman.chat.turn import Turn
from journeyman.connect import connect
from journeyman.errors import StoreError
from journeyman.events import Callbacks, ContextCompacted, Listener
from journeyman.history import History
from journeyman.inbox import Inbox, Queue, Receipt, current_inbox
from journeyman.journal import Section
from journeyman.loop.attempts import carry_out
from journeyman.loop.prepare import begin
from journeyman.loop.record import Options, current_path, current_run
from journeyman.loop.request import compact
from journeyman.model import Model, Prefix
from journeyman.result import Result
from journeyman.session import Session, Snapshot, Step, TurnStart
from journeyman.tools.context import current_asker
from journeyman.types import NOTHING_USED, Effect, Message, RunPath, ToolResult, ToolUse, Usage, UserContent
from journeyman.window import CompactedView, Compaction, SentView

BOTH: Final[tuple[Queue, Queue]] = ("steering", "follow_ups")

CLOSING: Final[Mapping[Effect, str]] = {
    "pure": "Error: interrupted before it finished. It changes nothing, so it may be called again.",
    "idempotent": "Error: interrupted before it finished. It may be called again with the same arguments.",
    "once": "Error: interrupted before it finished. Whether it took effect is unknown: find out before calling again.",
}
"""The result of a call that was cut off when its process or its task ended, by the effect of its tool."""


class Runs:
    """What the runs of one chat share."""

    def __init__(
        self,
        agent: Agent[Any, Any, Any],
        *,
        host: Host | None,
        callbacks: Callbacks | None,
        listeners: list[Listener],
        history: Sequence[Message],
        session: Session | None,
        inbox: Inbox,
        questions: Questions,
    ) -> None:
        """Begin with the conversation that the session keeps, or else with the `history` that is given."""
        self.agent = agent
        self.host = host or NOTHING_AROUND
        self.listeners = listeners
        self.inbox = inbox
        self.input: Any = ""
        """The input of the last run."""
        self.writer = SessionWriter(session, inbox)
        self.history = self.writer.loaded(history, self._closing)
        self.usage = self.writer.usage
        self.n_runs = self.writer.n_runs
        self.turns: list[TurnStart] = [*self.writer.turns]
        """Where the turns began that can be undone, oldest first."""
        self._callbacks = callbacks
        self._questions = questions
        self._numbers = count(1)
        self._above: RunPath = ()
        self._run_above = current_run.get()

    def _closing(self, call: ToolUse) -> str:
        """Return the result of a call that was cut off."""
        plan = self.agent.plan
        if call.name in (plan.output_name, plan.submit_name):
            return CLOSING["pure"]
        tool = plan.tools.get(call.name)
        default: Effect = "idempotent" if self.agent.tools_are_idempotent else "once"
        return CLOSING["once" if tool is None else tool.effect or default]

    def enter(self, model: Model | None) -> RunPath:
        """Make the runs part of the run that goes on here, if any. Return the path of the chat."""
        self._above, self._run_above = current_path.get(), current_run.get()
        self.host = replace(self.host, approve=self.host.approve or self._questions.approve, model=model)
        return (*self._above, self.agent.name)

    async def run(self, turn: Turn[Any], input: Any, *, goes_on: bool) -> Result[Any]:  # noqa: ANN401 - any agent's
        """Do one run of a turn. Its conversation and its usage are kept, however it ends."""
        self.n_runs += 1
        self.input = input
        current_path.set(self._above)
        current_run.set(self._run_above)
        current_questions.set(self._questions)
        current_asker.set(self._questions)
        current_inbox.set(self.inbox)
        turn.run = begin(self.agent, input, self._options(turn, goes_on=goes_on))
        try:
            result = await carry_out(turn.run)
        except BaseException as error:
            self.history.close(self._closing)
            try:
                self._end(turn)
            except StoreError as unsaved:  # what goes on is `error`
                error.add_note(str(unsaved))
            raise
        self._end(turn)
        return result

    def _options(self, turn: Turn[Any], *, goes_on: bool) -> Options:
        # The place in the journal is the same again only for the same run of the same chat.
        place = f"run/{self.n_runs}/message/{len(self.history.messages)}"
        journal = self.host.journal and Section(self.host.journal, place)
        return Options(
            callbacks=self._callbacks,
            listeners=self.listeners,
            abort=turn.signal,
            history=self.history,
            host=replace(self.host, journal=journal) if journal else self.host,
            inbox=self.inbox,
            store_step=None if self.writer.session is None else lambda: self.keep(turn.used()),
            going_on=self.inbox.hand_over if goes_on else None,
            abort_note=lambda: turn.note,
            numbers=self._numbers,
        )

    def _end(self, turn: Turn[Any]) -> None:
        used = turn.used()
        turn.run = None
        turn.spent += used
        self.usage += used
        self.keep()

    def keep(self, more: Usage = NOTHING_USED) -> None:
        """Keep what is new. `more` is what the run that goes on has used."""
        self.writer.write(self.history, self.usage + more, self.n_runs, self.turns)

    async def compact(self) -> ContextCompacted:
        """Make what is sent of the conversation shorter now."""
        self.n_runs += 1
        current_path.set(self._above)
        current_run.set(self._run_above)
        run = begin(self.agent, self.input, self._options(Turn(self.agent.name), goes_on=True))
        model = self.host.model or self.agent.model
        run.model = connect(model) if isinstance(model, str) else model
        try:
            return await compact(run)
        finally:
            self.usage += run.ledger.usage
            self.keep()

    def use(self, model: Model) -> None:
        """Go on with another model."""
        self.host = replace(self.host, model=model)
        if isinstance(self.history.view, CompactedView):
            self.history.view.ceiling_tokens = None  # that of the model before

    def begin_turn(self) -> None:
        """Note where a turn begins, so that it can be undone."""
        messages = self.history.messages
        end = len(messages)
        if not self.history.may_say:  # what was begun at the provider may be left out of what is sent from now on
            while end and messages[end - 1].role == "user":
                end -= 1
            while end and messages[end - 1].role == "assistant":
                end -= 1
        start = TurnStart(end, len(messages[end - 1].content) if end else 0)
        if self.turns[-1:] != [start]:  # nothing was said in a turn that began in the same place
            self.turns.append(start)

    def undo(self) -> bool:
        """Hide the last turn that has said anything. False: there is none."""
        before = self.history.messages
        while self.turns:
            start = self.turns.pop()
            messages = list(before[: start.position])
            if messages:
                last = messages[-1]
                messages[-1] = replace(last, content=last.content[: start.n_blocks])
            if len(messages) < len(before) or messages[-1:] != [*before[-1:]]:
                view, self.history = self.history.view, History(messages, closing=self._closing)
                self.history.changed_from = _first_difference(before, self.history.messages)
                self.writer.bring_view(self.history, view)
                self.keep()
                return True
        return False

    def replace(self, messages: Sequence[Message]) -> None:
        """Go on from another conversation, whose turns are not known."""
        self.history, self.turns = History(messages, closing=self._closing), []
        self.keep()

    def reset(self) -> None:
        """Forget the conversation, the queues and the usage, and let go of background work."""
        self.history, self.input, self.usage, self.turns = History(), "", NOTHING_USED, []
        self.inbox.conversation = object()
        self.writer.clear()
        self.keep()


class SessionWriter:
    """Writes one chat to one session. Without a session, it writes nothing."""

    def __init__(self, session: Session | None, inbox: Inbox) -> None:
        """Put the texts that had been queued into `inbox`, and keep what is queued from now on."""
        self.session = session
        self._inbox = inbox
        self._lock = RLock()
        self._snapshot = snapshot = Snapshot() if session is None else session.snapshot
        self._n_messages = len(snapshot.messages)
        """How many messages the session holds."""
        self._staged: list[UserContent | ToolResult] = []
        """What the session holds beyond them."""
        self.usage = snapshot.usage
        """What all turns have used, as the session knows it."""
        self.n_runs = snapshot.n_runs
        """How many runs there were, as the session knows it."""
        self.turns: Sequence[TurnStart] = snapshot.turns
        """The turns that can be undone, as the session knows them."""
        self._numbers: dict[Receipt, int] = {}
        """The texts that wait, as the session knows them, with their numbers there."""
        self._kept_view: SentView | None = snapshot.view
        """What is sent in place of the first messages, as the session knows it."""
        self._sent: list[Message] | None = None
        """The list of messages in which it is sent; another one is another view."""

        for text in snapshot.waiting:
            self._numbers[inbox.put(text.text, text.queue)] = text.number
        if session is not None:
            inbox.on_put = self._put

    def loaded(self, given: Sequence[Message], closing: Callable[[ToolUse], str]) -> History:
        """Return the conversation that is kept, or else the one that is `given`, with its open calls closed."""
        snapshot = self._snapshot
        said = (Message("user", snapshot.staged),) if snapshot.staged else ()
        history = History((*snapshot.messages, *said) or given, closing=closing)
        history.changed_from = _first_difference(snapshot.messages, history.messages)
        if snapshot.view is not None and history.messages:
            self._show_again(history, snapshot.view)
        return history

    def bring_view(self, history: History, view: object) -> None:
        """Let a history that ends earlier have the last view that was kept of the longer one, if it fits."""
        kept = self._kept_view if isinstance(view, CompactedView) else None
        if kept is not None and history.changed_from >= kept.position:
            self._show_again(history, kept)

    def _show_again(self, history: History, kept: SentView) -> None:
        history.view = view = CompactedView(Prefix(), Compaction(()))
        view.restore(kept)
        self._kept_view, self._sent = kept, view.messages

    def write(self, history: History, usage: Usage, n_runs: int, turns: Sequence[TurnStart]) -> None:
        """Write what is new, or raise a `StoreError`. Call it in the chat's own thread only."""
        view = history.view if isinstance(history.view, CompactedView) and history.view.is_compacted else None
        sent, kept = None if view is None else view.messages, self._kept_view
        has_view = sent is not self._sent
        if has_view:
            kept = None if view is None else view.kept()
        if self.session is None:
            self._kept_view, self._sent = kept, sent
            return
        with self._lock:
            position, total = history.changed_from, len(history.messages)
            has_changed = position < total or total < self._n_messages
            staged, known = history.staged, set(map(id, self._staged))
            n_turns = min(len(turns), len(self.turns))
            while n_turns and turns[n_turns - 1] is not self.turns[n_turns - 1]:
                n_turns -= 1
            step = Step(
                position=position,
                messages=history.messages[position:] if has_changed else None,
                staged=staged if has_changed else [block for block in staged if id(block) not in known],
                gone=self._gone("delivered", "withdrawn"),
                usage=None if (usage, n_runs) == (self.usage, self.n_runs) else usage,
                n_runs=n_runs,
                turns=turns[n_turns:] if n_turns < max(len(turns), len(self.turns)) else None,
                n_turns=n_turns,
                view=kept,
                has_view=has_view,
            )
            is_new = has_changed or has_view or step.usage is not None or step.turns is not None
            if is_new or step.staged or step.gone:
                self._write(self.session, step)
                history.changed_from = self._n_messages = total
                self._staged = list(staged)
                self.usage, self.n_runs, self.turns = usage, n_runs, tuple(turns)
                self._kept_view, self._sent = kept, sent

    def clear(self, *queues: Queue) -> tuple[str, ...]:
        """Withdraw what waits, and return it; raise a `StoreError` if that could not be written. Any thread may."""
        withdrawn = self._inbox.clear(*(queues or BOTH))
        with self._lock:
            gone = self._gone("withdrawn")
            if gone and self.session is not None:
                self._write(self.session, Step(position=self._n_messages, gone=gone))
        return withdrawn

    def leave(self) -> None:
        """Tell everybody whose text was not said what becomes of it."""
        self._inbox.leave("withdrawn" if self.session is None else "kept")

    def _write(self, session: Session, step: Step) -> None:
        session.write(step)
        gone = set(step.gone)
        if gone:
            self._numbers = {receipt: number for receipt, number in self._numbers.items() if number not in gone}

    def _put(self, receipt: Receipt, queue: Queue) -> None:
        with self._lock:
            if self.session is not None:
                self._numbers[receipt] = self.session.add(receipt.text, queue)

    def _gone(self, *statuses: str) -> list[int]:
        return [number for receipt, number in self._numbers.items() if receipt.status in statuses]


def _first_difference(before: Sequence[Message], after: Sequence[Message]) -> int:
    """Return the position of the first message that is not the same in both, or where the shorter one ends."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((position for position, (old, new) in pairs if old != new), min(len(before), len(after)))
