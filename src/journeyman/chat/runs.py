"""The state that the runs of one chat share: the conversation, the use of all of them, and the session that keeps both.

What is new is written to the session before anything comes of it. A step is everything that changed since the last
one: messages, staged results, texts that were said or withdrawn, and usage. So no text is both in a queue and in the
conversation, or in neither. A step that could not be written is part of the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Final

from journeyman.agent import DEFAULT_RUNTIME, Agent, Runtime
from journeyman.chat.questions import Questions
from journeyman.chat.turn import Turn
from journeyman.chat.writer import DurableSession, SessionWriter, TurnLife, first_difference
from journeyman.definition.data import copy_with
from journeyman.errors import InvalidArguments, StoreError
from journeyman.events import Callbacks, ContextCompacted, Listener
from journeyman.history import History
from journeyman.inbox.inbox import Inbox, Queue, Receipt, current_conversation, enter_conversation
from journeyman.journal import Digests, RecordingSink, Section, SharedTape
from journeyman.loop.prepare import begin, closing_of, prepare_to_compact
from journeyman.loop.request import compact
from journeyman.loop.run import carry_out
from journeyman.loop.state import Options, Run, enter, run_context
from journeyman.model import Model
from journeyman.result import Result
from journeyman.session import Session, TurnStart
from journeyman.types import NOTHING_USED, Message, RunPath, Usage
from journeyman.window import CompactedView

_PATIENCE_S: Final = 60.0
"""So long what another process keeps from being written is tried again before it is an error. SQLite's own limit of
5 seconds once ended turns during a backup, which holds the file for longer."""
# It bounds how often the file is looked at, and how long a turn waits once it is free.
_AGAIN_S: Final = 0.02


class Runs:  # noqa: PLR0904 - one verb for each thing that is done to a conversation
    """The runs of one chat, with the conversation, the use and the session that they share."""

    def __init__(
        self,
        agent: Agent[Any, Any, Any],
        *,
        runtime: Runtime | None,
        callbacks: Callbacks | None,
        listeners: list[Listener],
        history: Sequence[Message],
        session: Session | None,
        inbox: Inbox,
        questions: Questions,
    ) -> None:
        """Begin with the conversation that the session keeps, or else with the `history` that is given."""
        self.agent = agent
        self.closing = partial(closing_of, agent)
        self.runtime = runtime or DEFAULT_RUNTIME
        self.listeners = listeners
        self.inbox = inbox
        self.input: Any = ""
        """The input of the last run."""
        self.writer = SessionWriter(session, inbox)
        self.history = self.writer.load_history(history, self.closing)
        self.usage = self.writer.usage
        self.n_runs = self.writer.n_runs
        self.turns: list[TurnStart] = [*self.writer.turns]
        """The beginnings of the turns that can be undone, oldest first."""
        self.unfinished: TurnLife | None = None
        """The turn that is a durable run, and has begun and not ended."""
        self._durable = session if isinstance(session, DurableSession) else None
        self._digests = Digests()
        """The digests of the conversation, which no run has to make again."""
        self._is_unsure = False
        """True when a turn may have been stored of which nobody has heard: its beginning was cut off."""
        self._begins_later = False
        """True when a turn begins once that one has ended."""
        self._callbacks = callbacks
        self._questions = questions
        self.tape: RecordingSink | None = None
        """Records the whole chat."""
        self._numbers = count(1)
        self._above: RunPath = ()
        self._run_above = run_context.get().run

    def enter(self, model: Model | None) -> RunPath:
        """Make the runs part of the run that goes on here, if any. Return the path of the chat."""
        around = run_context.get()
        self._above, self._run_above = around.path, around.run
        self.runtime = replace(self.runtime, model=model)
        if self._durable is None:  # else the answer may come from elsewhere, too
            self.runtime = replace(self.runtime, approver=self.runtime.approver or self._questions.approve)
        return (*self._above, self.agent.name)

    def listen(self, say: Callable[[str], Receipt], stop: Callable[[str], None]) -> None:
        """Connect the chat to those outside of the process: they can say texts in it, withdraw them, and stop it."""
        # A shared tape is somebody else's: what is said there is not for this chat.
        if self.tape is None or self.tape.outside is None or isinstance(self.runtime.recorder, SharedTape):
            return
        self._questions.asks_outside = self.tape.outside.questions.asks_outside
        self.tape.outside.questions = self._questions

        def say_or_queue(text: str, queue: Queue) -> Receipt:
            return say(text) if queue == "steering" else self.inbox.put(text, queue)

        self.tape.outside.listen(say=say_or_queue, withdraw=self.inbox.withdraw, stop=stop)

    async def run(self, turn: Turn[Any], input: Any, *, goes_on: bool) -> Result[Any]:  # noqa: ANN401 - any agent's
        """Do one run of a turn. Its conversation and its usage are kept, however it ends.

        A turn that is a durable run is not ended by a cancellation: it is gone on with by `resume`, or by whoever opens
        the chat next.
        """
        if self._durable is not None:
            # A turn that was cut off has the number that this one would have.
            await self.finish()
            if self._begins_later:
                self._begins_later = False
                self.begin_turn()
            # Each life of the turn begins with what is stored, so nothing new may stand in memory only.
            await self._durable.call(self.keep)
            # A cancellation may come after the store has it, and before this is told.
            self._is_unsure = True
            try:
                await self._durable.begin_turn(
                    self.agent, input, number=self.n_runs + 1, goes_on=goes_on, runtime=self.runtime
                )
            except InvalidArguments:
                self._is_unsure = False  # it ends at once, before anything was done
            else:
                self._is_unsure = False
                self.input = input
                self.writer.note_base(self.history)
                self.unfinished = self._life(goes_on=goes_on)
                return await self.resume(turn)
        self.n_runs += 1
        self.input = input
        enter(path=self._above, run=self._run_above)
        asks = self._questions
        enter_conversation(replace(current_conversation.get(), inbox=self.inbox, questions=asks, asker=asks))
        turn.run = begin(self.agent, input, self._options(turn, goes_on=goes_on))
        try:
            result = await carry_out(turn.run)
        except BaseException as error:
            # What is kept must be able to go on: providers refuse a call without a result.
            self.history.close(self.closing)
            try:
                self._end(turn)
                await self.keep_patiently()
            except StoreError as unsaved:  # what goes on is `error`
                error.add_note(str(unsaved))
            raise
        self._end(turn)
        await self.keep_patiently()
        return result

    async def find(self) -> bool:
        """Find a turn that has begun and not ended: `unfinished` holds it then. Return whether there is one."""
        if self._durable is None:
            return False
        found = await self._durable.open_turn(self.agent, self.n_runs + 1)
        if found is not None:
            self.input, goes_on = found
            self.unfinished = self._life(goes_on=goes_on)
        return found is not None

    def _life(self, *, goes_on: bool) -> TurnLife:
        return TurnLife(
            number=self.n_runs + 1,
            goes_on=goes_on,
            agent=self.agent,
            writer=self.writer,
            inbox=self.inbox,
            history=self.history,
            questions=self._questions,
        )

    async def resume(self, turn: Turn[Any]) -> Result[Any]:
        """Go on with the unfinished turn to its end, or wait for it while somebody else drives it."""
        durable, begun = self._durable, self.unfinished
        assert durable is not None
        assert begun is not None

        def adopt_run(run: Run, history: History) -> None:
            turn.run, self.history = run, history

        def add_options(options: Options) -> Options:
            return replace(
                options,
                callbacks=self._callbacks,
                listeners=self.listeners,
                abort_note=lambda: turn.note,
                digests=self._digests,
            )

        life = self.unfinished = copy_with(begun, told=adopt_run, around=add_options)
        enter(path=self._above)
        try:
            runtime = self.runtime if self.tape is None else replace(self.runtime, recorder=SharedTape(self.tape))
            result, stored = await durable.carry(life, runtime=runtime, abort=turn.signal)
            turn.spent += turn.sum_usage() if life.is_ended else result.metadata.usage or NOTHING_USED
        finally:
            turn.run = None
        self.unfinished = None
        if stored is not None:
            self.writer.read(stored)
            self.history, self.turns = self.writer.load_history((), self.closing), [*stored.turns]
        self.n_runs, self.usage = self.writer.n_runs, self.writer.usage
        return result

    async def finish(self) -> None:
        """End the unfinished turn, if there is one: it is stopped where it was cut off."""
        if self._is_unsure:
            self._is_unsure = False
            await self.find()
        if self.unfinished is not None:
            turn = Turn[Any](self.agent.name)
            turn.stop("something else was said")
            await self.resume(turn)

    def _options(self, turn: Turn[Any], *, goes_on: bool) -> Options:
        # The place in the journal is the same again only for the same run of the same chat.
        place = f"run/{self.n_runs}/message/{len(self.history.messages)}"
        journal = self.runtime.journal and Section(self.runtime.journal, place)
        return Options(
            callbacks=self._callbacks,
            listeners=self.listeners,
            abort=turn.signal,
            history=self.history,
            runtime=replace(self.runtime, journal=journal) if journal else self.runtime,
            inbox=self.inbox,
            store_step=None if self.writer.session is None else lambda: self.keep_patiently(turn.sum_usage()),
            going_on=self.inbox.hand_over if goes_on else None,
            abort_note=lambda: turn.note,
            numbers=self._numbers,
            digests=self._digests,
            tape=self.tape,
        )

    def _end(self, turn: Turn[Any]) -> None:
        used = turn.sum_usage()
        turn.run = None
        turn.spent += used
        self.usage += used

    async def keep_patiently(self, more: Usage = NOTHING_USED) -> None:
        """Keep what is new, as `keep` does; while another process is in the way, let the event loop go on."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _PATIENCE_S
        while True:
            try:
                # SQLite would wait in this thread, and with it every other run of the loop.
                return self.writer.write(self.history, self.usage + more, self.n_runs, self.turns, waits=False)
            except StoreError as error:
                if not error.is_busy or loop.time() > until_s:
                    raise
            await asyncio.sleep(_AGAIN_S)

    def keep(self, more: Usage = NOTHING_USED) -> None:
        """Write what is new to the session. `more` is the usage of the run that goes on."""
        self.writer.write(self.history, self.usage + more, self.n_runs, self.turns)

    async def compact(self) -> ContextCompacted:
        """Make what is sent of the conversation shorter now."""
        # The number names the place in the journal: no other run may have it.
        self.n_runs += 1
        enter(path=self._above, run=self._run_above)
        run = begin(self.agent, self.input, self._options(Turn(self.agent.name), goes_on=True))
        run.prepared = prepare_to_compact(run)
        try:
            return await compact(run)
        finally:
            # However it ended: what the strategies asked is paid for.
            self.usage += run.ledger.usage
            await self.keep_patiently()

    def use(self, model: Model) -> None:
        """Go on with another model."""
        self.runtime = replace(self.runtime, model=model)
        if isinstance(self.history.view, CompactedView):
            self.history.view.ceiling_tokens = None  # that of the model before

    def begin_turn(self) -> None:
        """Note where a turn begins, so that it can be undone."""
        if self.unfinished is not None:
            self._begins_later = True
            return
        messages = self.history.messages
        end = len(messages)
        if not self.history.may_say:  # what was begun at the provider may be left out of what is sent from now on
            while end and messages[end - 1].role == "user":
                end -= 1
            while end and messages[end - 1].role == "assistant":
                end -= 1
        start = end_of(messages[:end])
        if self.turns[-1:] != [start]:  # nothing was said in a turn that began in the same place
            self.turns.append(start)

    def undo(self) -> bool:
        """Hide the last turn that has said anything. False: there is none."""
        while self.turns:
            if self.cut(self.turns.pop()):
                self.keep()
                return True
        return False

    def cut(self, start: TurnStart) -> bool:
        """Hide what comes after a place; it is kept so with the next step. False: there is nothing."""
        before = self.history.messages
        messages = list(before[: start.position])
        if messages:
            last = messages[-1]
            messages[-1] = replace(last, content=last.content[: start.n_blocks])
        if len(messages) == len(before) and messages[-1:] == [*before[-1:]]:
            return False
        view, self.history = self.history.view, History(messages, closing=self.closing)
        # Only what is not the same any more is written.
        self.history.changed_from = first_difference(before, self.history.messages)
        self.writer.bring_view(self.history, view)
        return True

    def replace(self, messages: Sequence[Message]) -> None:
        """Go on from another conversation, whose turns are not known."""
        self.history, self.turns = History(messages, closing=self.closing), []
        self.keep()

    def reset(self) -> None:
        """Forget the conversation, the queues and the usage, and let go of background work."""
        self.history, self.input, self.usage, self.turns = History(), "", NOTHING_USED, []
        # Background work knows its conversation by this object, so its notification finds that it is gone.
        self.inbox.conversation = object()
        self.writer.clear()
        self.keep()


def end_of(messages: Sequence[Message]) -> TurnStart:
    """Return the place at which a conversation ends, where what is said next begins."""
    return TurnStart(len(messages), len(messages[-1].content) if messages else 0)
