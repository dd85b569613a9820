"""Driving a run that was claimed: from its records to its end, or to where it has to leave this process.

The run is an ordinary run with a journal. Beside it, this looks after what comes from outside: what is said to it, the
word to stop or to hold, answers; and after the journal, which tells when the run is another's now, or cannot go on. A
run for which nothing is left to do but to wait is suspended: then it is a row, and takes no memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from dataclasses import field, replace
from functools import partial
from operator import call
from typing import Any, Final, Literal, TypeAlias, TypeVar

from journeyman.cancellation import Abort, Wakeup, wait_until_ended
from journeyman.chat.writer import SessionWriter, TurnLife
from journeyman.definition.data import copy_with, lazy_dataclass
from journeyman.durable.binding import Program
from journeyman.durable.children import Here, SentOut, budget_of, make_end_signal
from journeyman.durable.intake import Intake
from journeyman.durable.journal import Exit, Lease, RunJournal, patiently
from journeyman.durable.records import (
    DONE,
    OVER,
    Change,
    Claim,
    Head,
    Status,
    dump_questions,
    load_head,
    prints_of,
    record_of_step,
)
from journeyman.errors import InvalidArguments, RunBlocked, SubagentMisused
from journeyman.inbox.inbox import Inbox, current_conversation, enter_conversation
from journeyman.inbox.signals import PendingQuestion, Signal
from journeyman.journal import Lives, RecordingSink, StepFacts, encode_step
from journeyman.loop.finish import END_STEP
from journeyman.loop.prepare import begin, closing_of
from journeyman.loop.results import dump_result
from journeyman.loop.run import carry_out
from journeyman.loop.state import Options, Origin, Run, enter, last_handed_in
from journeyman.loop.watch import begin_tape, end_tape
from journeyman.result import Result, Success
from journeyman.store.codec import pack
from journeyman.store.log import lines_of_messages, lines_of_step, queued
from journeyman.tools.exact import StoredValue, load_value
from journeyman.types import NOTHING_USED, Usage

T = TypeVar("T")

_log = logging.getLogger("journeyman")
_ANOTHERS: Final = "somebody else drives it now"
_LOOK_S: Final = 1.0
"""How often a run is looked at when nothing calls for it. The store tells of most changes: this finds those that it
did not."""


class FollowingAbort(Abort):
    """The signal of a run, which follows that of the program in the moment in which somebody looks: another thread may
    have fired that one, and seen it, before the event loop is told of it."""

    __slots__ = ("_follow",)

    def __init__(self, follow: Callable[[], str | None]) -> None:
        """`follow` returns the reason of the program's signal, once the run has to heed it."""
        super().__init__()
        self._follow = follow

    @property
    def aborted(self) -> bool:
        """True once either was fired."""
        if self._reason is None and (reason := self._follow()) is not None:
            self.abort(reason)
        return self._reason is not None


@lazy_dataclass()
class PendingEnd:
    """The end that a run is about to have."""

    result: Result[Any]
    is_stored: asyncio.Future[bool]
    """Whether that was stored; False: the run was stopped before."""


DriverState: TypeAlias = Literal["driving", "ending", "over", "left"]
"""The state of a run that is driven. It is ending while it stores its end itself, and goes on if that comes to nothing;
over once it is stored how it has ended: nothing that comes changes that; and has left once what goes on of it in memory
is taken down: nothing of it is stored then."""


@lazy_dataclass(kw_only=True)
class RunDriver:
    """One life of a run, in this process."""

    here: Here
    claim: Claim
    program: Program
    suspend_after_s: float
    """How long a run that only waits stays in memory, in seconds."""
    stored: Callable[[str, int, float], None] | None = None
    """Gets the key, the size in bytes and the seconds of each step that was stored."""
    inbox: Inbox = field(init=False)
    abort: Abort = field(init=False)
    is_held: bool = False
    n_weighed: int = 0
    """How many signals had come when a run that rests was last found to have to wait; -1 once it is about to end."""
    intake: Intake | None = None
    """The intake takes each signal that comes for the run in this life."""
    life: Lease | None = None
    tape: RecordingSink | None = None
    """Records the life; all lives of a run are one recording."""
    journal: RunJournal = field(init=False)
    turn: TurnLife | None = None
    """What the run is in its chat, if it is a turn."""
    sent: SentOut = field(init=False)
    run: Run = field(init=False)
    unsubscribe: Callable[[], None] = lambda: None
    left: Exit | None = None
    """Why the run has to leave this process, once it has to."""
    looked_s: float = 0.0
    """When it was last seen to be ours, by the clock of the event loop."""
    ending: PendingEnd | None = None
    """How the run is about to end: set while it waits until that is stored."""
    state: DriverState = "driving"
    stirred: Wakeup = field(default_factory=Wakeup)
    """Called when there is something to look at."""
    head: Head = field(init=False)
    """The document with which the run was begun."""

    async def drive(self) -> Result[Any] | Exit:
        """Drive the run until it is over, or has to leave.

        Raises:
            asyncio.CancelledError: the surrounding task was cancelled. The run may be claimed by whoever comes next.
        """
        status, code = "left", None
        # Of a run with one life there is nothing to go through before it heeds the program's signal: it is its own.
        self.abort = FollowingAbort(self._followed) if self.is_watched else self.program.abort or Abort()
        try:
            outcome = await self._driven()
            if not isinstance(outcome, Exit):
                status, code = ("success", None) if isinstance(outcome, Success) else ("failure", str(outcome.code))
            return outcome
        finally:
            if status == "left" and self.life is not None:
                # First that it has left: what waits for its next step fails then, and does not begin.
                self.life.departure.happen()
                self.life.open()
            await end_tape(self.program.runtime, self.tape, status, code)
            # Hold no more what refers back to this driver: in a circle, all of it would be freed only when garbage is
            # collected, which stops every run for a while.
            self.life = self.intake = None
            for part in ("abort", "journal", "sent", "run"):
                if hasattr(self, part):  # a life that could not begin has not all of them
                    delattr(self, part)

    @property
    def is_watched(self) -> bool:
        """False: nothing can make the run leave, so that its own task carries it, and no other looks at it."""
        return self.here.keeps_steps or self.program.turn is not None

    @property
    def n_seen(self) -> int:
        """The number of signals that have come."""
        return 0 if self.intake is None else len(self.intake.seen)

    async def _driven(self) -> Result[Any] | Exit:
        self.looked_s, self.inbox = asyncio.get_running_loop().time(), Inbox()
        # A context of its own: what the run sets in it must not reach whoever drives the next one here.
        around = copy_context() if self.is_watched else None
        enter = call if around is None else around.run
        try:
            head = self.head = self.claim.head or load_head(self.claim.row)
            life = self.life = await self._life(head)
            options, intake = await self._connect(head, life)
            run = self.run = enter(self._begin, head, await self._read_input(head), options)
            # Before the first step: a stop or a hold that came while nobody drove the run is obeyed before anything is
            # done.
            await self._catch_up()
        except RunBlocked as blocked:
            return await self._gone(None, Exit(how="blocked", why=blocked.why))
        except BaseException:
            await self._gone(None, Exit(how="released"))
            raise
        self.inbox.posts = (*self.inbox.posts, intake.post)
        carrying: asyncio.Task[Any] | None = None
        try:
            if around is None:
                return await carry_out(run)
            carrying = asyncio.create_task(_carried(run), context=around)
            carrying.add_done_callback(self.stirred.call)
            leaving = await self._watch_run(carrying, run, life, intake)
        except BaseException:
            await self._release(run, life, intake, carrying)
            raise
        finally:
            self.unsubscribe()
            self.inbox.posts = tuple([each for each in self.inbox.posts if each is not intake.post])
        if leaving is not None:
            await self._taken_down(carrying)
            intake.take_out()  # what waits comes again with the next life
            return leaving
        result = carrying.exception() or carrying.result()
        if isinstance(result, BaseException):
            await self._gone(run, Exit(how="released"))
            raise result
        return result

    async def _release(self, run: Run, life: Lease, intake: Intake, carrying: asyncio.Task[Any] | None) -> None:
        """Take the run down and give it back, also if this is cancelled meanwhile."""
        life.close()
        asked = life.asked  # it waits no more here, but is asked still, until then
        try:
            if carrying is not None:
                await self._taken_down(carrying)
        finally:
            intake.take_out()
            await self._gone(run, Exit(how="released"), asked)

    async def _taken_down(self, carrying: asyncio.Task[Any]) -> None:
        """End the run in memory. Nothing that it does by then is stored."""
        self.state = "left"
        carrying.cancel()
        await wait_until_ended(carrying, on_cancel=carrying.cancel)
        if not carrying.cancelled():
            carrying.exception()  # nobody else looks

    def release(self) -> None:
        """Give the run back for another process, once the steps that are under way have ended."""
        if self.life is not None and self.left is None:
            self.life.close()
            self._leave(Exit(how="released"))

    def _leave(self, leaving: Exit) -> None:
        """Note why the run has to leave; the first reason counts."""
        self.left = self.left or leaving
        self.stirred.call()

    def deliver(self, signal: Signal) -> None:
        """Take a signal in hand, once."""
        if self.life is None or self.intake is None or not self.intake.take(signal):
            return
        match signal.kind:
            case "approve" | "answer":
                self.journal.answer(signal)
            case "task_ended" | "mail":
                self.sent.note(signal)
            case "stop":
                self._stop(str(signal.body.get("reason") or "cancelled"))
            case "hold" | "release":
                self.is_held = signal.kind == "hold"
                is_shut = self.is_held and not self.abort.aborted
                if is_shut or not self.is_watched:
                    (self.life.close if is_shut else self.life.open)()
            case _:
                pass
        self.stirred.call()

    async def _life(self, head: Head) -> Lease:
        if self.here.strict and not head.accepts and (differ := self._differences(head)):
            raise RunBlocked(self.claim.row.id, f"{differ}, and the program is strict")
        return Lease(
            self.here,
            self.claim,
            await self._read(self.here.engine.records) if self.claim.row.n_steps else (),
            leave=self._leave,
            stir=self.stirred.call,
            stored=self.stored,
            accepts=head.accepts,
        )

    def _differences(self, head: Head) -> str:
        now = prints_of(self.program.agent)
        # Parts that an older version did not digest count as equal.
        parts = [name for name, each in now.items() if head.prints.get(name, each) != each]
        return f"the agent's {' and '.join(parts)} differ from those that it was begun with" if parts else ""

    async def _connect(self, head: Head, life: Lease) -> tuple[Options, Intake]:
        program, turn = self.program, await self._turn(head)
        self.turn = turn
        self.tape = begin_tape(
            program.runtime,
            "durable",
            program.agent.name,
            id=self.claim.row.id,
            traceparent=head.traceparent or "",
            conversation=head.session or "",
        )
        intake = self.intake = Intake(life, program.agent.name, self.inbox, tape=self.tape, turn=turn)
        lives, asks = Lives(), None if turn is None else turn.questions
        self.sent = SentOut(life, lives, head, program=program, here=self.here)
        self.journal = RunJournal(
            life,
            lives,
            sent=self.sent,
            tape=self.tape,
            ask_here=program.ask_here if turn is None else None if asks is None else lambda: asks,
            catch_up=self._catch_up,
            take_heard=intake.take_heard,
            note_late=intake.note_late,
        )
        above, budget = head.above, program.runtime.budget
        budget = budget if above is None else budget_of(above, budget)
        runtime = copy_with(program.runtime, journal=self.journal, budget=budget)
        if above is not None and above.model and program.tool is not None:
            try:
                runtime = replace(runtime, model=await program.tool.model(above.model))
            except SubagentMisused as misused:
                raise RunBlocked(self.claim.row.id, str(misused)) from misused
        options = Options(
            deps=program.deps,
            max_attempts=head.max_attempts,
            callbacks=program.callbacks,
            listeners=() if program.on_event is None else (program.on_event,),
            abort=self.abort,
            history=head.history,
            runtime=runtime,
            inbox=self.inbox,
            more=self._has_more,
            settle=self._settle,
            origin=above and Origin(mode="background", tool_use_id=above.tool_use_id, number=above.number),
            tape=self.tape,
            is_checked=self.program.is_checked,
            keeps_steps=self.here.keeps_steps,
        )
        if turn is not None:
            said = {-n for n in life.used_up if n < 0}
            options = turn.options(options, said=said, has_begun="prompt" in life.known)
        return options, intake

    async def _read_input(self, head: Head) -> object:
        agent = self.program.agent
        if agent.input is str:
            return head.content or head.input
        try:
            return await load_value(agent.plan.input, StoredValue(head.input, head.exact))
        except InvalidArguments as invalid:
            why = f"its input no longer fits the agent's type: {'; '.join(invalid.issues)}"
            raise RunBlocked(self.claim.row.id, why) from invalid

    def _begin(self, head: Head, given: object, options: Options) -> Run:
        program = self.program
        enter(run=None, call=None)
        if head.above is not None:
            enter(path=head.above.path)
            program.guard(head, head.above, self.abort.abort)
        conversation = copy_with(current_conversation.get(), asker=self.journal)
        enter_conversation(conversation if self.turn is None else self.turn.place(conversation))
        run = begin(program.agent, given, options)
        if self.turn is not None:
            self.turn.told(run, self.turn.history)
        if program.abort is not None and program.abort is not self.abort:
            abort = program.abort
            self.unsubscribe = abort.subscribe(lambda: self._stop(abort.reason or ""))
        return run

    async def _turn(self, head: Head) -> TurnLife | None:
        """Return what the run is in its chat: as the chat has it, if that is open here, or as it is stored."""
        if head.session is None:
            return None
        turn = self.program.turn
        if turn is None:
            snapshot = await self._read(lambda _: self.here.engine.conversation(head.session or ""))
            writer = SessionWriter(None, self.inbox, snapshot)
            turn = TurnLife(
                number=head.number,
                goes_on=head.goes_on,
                agent=self.program.agent,
                writer=writer,
                inbox=self.inbox,
                history=writer.load_history((), partial(closing_of, self.program.agent)),
            )
        self.inbox = turn.inbox
        if turn.writer.n_runs != head.number - 1:
            why = f"the session {head.session} has gone on without it: it has had {turn.writer.n_runs} runs"
            raise RunBlocked(self.claim.row.id, why)
        return turn

    async def _has_more(self) -> bool:
        """Wait for what may still be said to the run, which has its answer. False: nothing can come; what else is said
        to a chat is said in another run."""
        if self.life is None or not (self.sent.has_sent or self._is_member()):
            return self.turn is None and self.inbox.has_news
        with self.life.resting():
            self.life.edge.reach()  # it may have been stopped before it was here again
            while not self.inbox.has_news:
                # The mark is made before the look: what is written in between is not missed.
                mark, n_seen = self.here.mark(), self.n_seen
                may_come = await self._may_come()
                self.n_weighed = n_seen if may_come else -1
                if not may_come:
                    await self._catch_up()  # what has ended has told so in the same transaction
                    break
                await self.here.changed(_LOOK_S, since=mark)
        return self.inbox.has_news

    def _is_member(self) -> bool:
        """Tell whether the run is a member of a team, which waits for mail."""
        above = self.head.above
        is_let_go = self.intake is not None and self.intake.is_let_go
        return above is not None and bool(above.member) and not is_let_go

    async def _may_come(self) -> bool:
        """Tell whether something may still be said to the run: by what it has sent out, or to a member of a team."""
        if await self._read(lambda _: self.sent.has_open()):
            return True
        if not self._is_member():
            return False
        if not self.inbox.has_news:
            await self.sent.rest(
                self.run.attempt.step("idle", "idle"),
                self.run.answer,
                n_calls=self.run.ledger.n_model_calls,
                n_seen=self.n_seen,
            )
        return True

    def _followed(self) -> str | None:
        """Return why the program has stopped the run, if it has, and the run is where it was."""
        given = self.program.abort
        if given is None or not given.aborted or self.life is None or self.journal.is_replaying():
            return None
        return given.reason or ""

    def _stop(self, reason: str) -> None:
        """End the run; but not before it is where it was: it would end without what it has done and used."""
        if self.life is not None and self.journal.is_replaying():

            def stop() -> None:
                self.journal.go_live("stop")
                self.abort.abort(reason)

            self.life.edge.wait_for(stop)
            if self.life.rests:  # it is where it was, though no step has said so
                self.life.edge.reach()
        else:
            self.abort.abort(reason)

    async def _watch_run(self, carrying: asyncio.Task[Any], run: Run, life: Lease, intake: Intake) -> Exit | None:
        """Wait until the run is over, or has to leave and is given back. None: it is over."""
        while True:
            await self._stirring(life, carrying)
            leaving = self.left
            if leaving is not None and leaving.how == "blocked" and life.edge.is_awaited:
                # It cannot be brought to where it was, and is to be stopped: it ends with what is known of it.
                run.ledger.add(self._beyond(run))
                self.left = None
                life.edge.reach()
                continue
            if carrying.done() and (leaving is None or self.state == "over"):
                return None
            if leaving is None:
                leaving = await self._paused(run, life)
            if leaving is None and self.ending is not None:
                leaving = await self._end(run, life, intake, self.ending)
            if leaving is not None and leaving.how in ("fenced", "lost", "suspended"):
                return leaving
            if leaving is not None and not life.n_working:  # what was under way has ended
                # The reason that a step differs is mostly that the agent was changed: whoever reads it has to see both.
                if leaving.how == "blocked" and (differ := self._differences(self.head)):
                    leaving = replace(leaving, why=f"{leaving.why}; {differ}")
                return await self._gone(run, leaving)

    async def _stirring(self, life: Lease, carrying: asyncio.Task[Any]) -> None:
        """Wait until there is something to look at."""
        # More often while it waits, so that it leaves memory in time; a run at work is not looked at for that.
        patience_s: float | None = _LOOK_S
        if life.questions or life.rests:
            patience_s = min(_LOOK_S, max(self.suspend_after_s / 4, 0.005))
        elif not self.here.keeps_steps:
            patience_s = None  # nobody else can drive it
        if self.left is not None or self.is_held:
            # It leaves as soon as its last step has ended, which nobody tells.
            patience_s = 0.05
        await self.stirred.wait(patience_s)
        # It stores its end, and then tells those who watch. Whatever has come is heeded if that comes to nothing.
        while self.state == "ending" or (self.state == "over" and not carrying.done()):
            await self.stirred.wait(patience_s)

    async def _paused(self, run: Run, life: Lease) -> Exit | None:
        """Say whether the run has to leave because it is held, or because it only waits."""
        if self.is_held and not self.abort.aborted:
            life.close()
            return Exit(how="held")
        life.open()
        now_s = asyncio.get_running_loop().time()
        if now_s - self.looked_s >= _LOOK_S:  # the process may have been stopped for a while
            self.looked_s = now_s
            if (taken := await self._taken_over()) is not None:
                return taken
        is_stopping = self.abort.aborted or life.edge.is_awaited
        return await self._suspended(run, life) if self._is_idle(life) and not is_stopping else None

    def _is_idle(self, life: Lease) -> bool:
        """Tell whether the run has only waited for a while, and has made up its mind about all that has come."""
        return life.is_idle_for(self.suspend_after_s) and (not life.rests or self.n_weighed == self.n_seen)

    async def _taken_over(self) -> Exit | None:
        """Say whether another process drives the run now. One that writes nothing learns of it only so."""
        seen = await self._read(self.here.engine.glance)
        is_ours = seen is not None and seen.epoch == self.claim.epoch
        return None if is_ours else Exit(how="fenced", why=_ANOTHERS)

    async def _suspended(self, run: Run, life: Lease) -> Exit | None:
        """Give back a run that only waits. None: something has come for it meanwhile."""
        life.close()
        expiries = [each.expires_at for each in life.questions.values() if each.expires_at is not None]
        async with life.noting:
            if not self._is_idle(life):  # an answer has come while a note was written
                life.open()
                return None
            change = self._change(run, life, "waiting", wake=min(expiries, default=None))
            # Only if no more signals are stored than were seen: one that came in between finds a run that nobody would
            # wake.
            if await self._settled(change, n_signals=self.n_seen):
                return Exit(how="suspended", history=run.history.export())
        life.open()
        await self._catch_up()
        return await self._taken_over()

    async def _catch_up(self) -> None:
        """Take in hand all signals that have come for the run."""
        for signal in await self._read(lambda id: self.here.engine.signals(run=id)):
            self.deliver(signal)

    async def _read(self, work: Callable[[str], Awaitable[T]]) -> T:
        """Read something of the run; again, as long as what keeps it from being read may pass."""
        id = self.claim.row.id
        return await patiently(lambda: work(id), what=f"what is stored of the run {id}")

    async def _settle(self, result: Result[Any]) -> bool:
        """Store how the run has ended. False: the run was stopped before that."""
        life, intake = self.life, self.intake
        if self.state == "left" or life is None or intake is None:
            raise asyncio.CancelledError
        ending = self.ending = PendingEnd(result, asyncio.get_running_loop().create_future())
        # Here, where nothing has to be woken for it; what else has come is the matter of whoever watches the run.
        while self.left is None and not (self.is_held and self.is_watched) and not ending.is_stored.done():
            self.state = "ending"
            try:
                self.left = await self._end(self.run, life, intake, ending) or self.left
            finally:
                self._go_on()
        if self.state != "over":
            self.stirred.call()
        return await ending.is_stored

    def _go_on(self) -> None:
        """Drive the run further, if storing its end came to nothing."""
        if self.state == "ending":
            self.state = "driving"

    async def _end(self, run: Run, life: Lease, intake: Intake, ending: PendingEnd) -> Exit | None:
        """Store how the run has ended, unless something came before that: then that is obeyed first. Whoever sends
        something once it is stored is told that the run is over."""
        turn, head, result, body = self.turn, self.head, ending.result, None
        # Of a run with one life, to which nobody belongs, whoever drives it keeps the result.
        if self.here.keeps_steps or turn is not None or head.above is not None:
            said = await dump_result(result, self.program.agent, written=last_handed_in(run), keeps_history=False)
            body = pack(encode_step(said, StepFacts(kind=END_STEP.kind)))
        # A stop that came while the run went through old steps holds now, also where it ends before it has come to new
        # ones.
        life.edge.reach()
        if self.abort.aborted and result.code != "EXECUTION_CANCELLED":
            self.ending = None
            ending.is_stored.set_result(False)
            return None
        # Before the end is stored: a process that died in between would leave members that nobody lets go.
        if life.known:  # of its steps nothing is known that could have made one
            await patiently(self.sent.leave, what=f"that the members of {self.claim.row.id} may go")
        status, why = ("done", None) if isinstance(result, Success) else ("failed", str(result.code))
        change = self._change(run, life, status, why=why)
        posts, above, agent, now = None, head.above, self.program.agent, self.here.now()
        if above is not None and turn is None:
            posts = make_end_signal(self.claim.row, head, above, agent=agent, result=result, now=now)
        step, note = (None, None) if turn is None else turn.make_last_step(run.ledger.usage)
        unsaid = intake.list_unsaid()
        if body is not None:
            lines = [] if step is None else [*lines_of_step(step)]
            if turn is None:
                lines += lines_of_messages(result.history)
            else:
                lines += [queued(receipt.text, "steering") for _, receipt in unsaid]
            used_s, said_in = life.work.used_s, head.session or self.claim.row.id
            last = record_of_step(self.claim, END_STEP, DONE, effect="pure", at=now, used_s=used_s, body=body)
            change = replace(change, end=last, conversation=said_in, lines=lines)
        began_s = asyncio.get_running_loop().time()
        # Not if something came that was not looked at: whoever has sent it was told that the run has taken it.
        if not await self._settled(change, n_signals=self.n_seen, posts=posts):
            await self._catch_up()  # something was said in this moment
            self.stirred.call()
            return await self._taken_over()
        self.state = "over"
        if self.stored is not None and change.end is not None:
            self.stored(change.end.key, len(change.end.body or b""), asyncio.get_running_loop().time() - began_s)
        self.journal.go_live("end")  # who watches is told in the life that has stored it
        intake.tell_late(unsaid)
        if note is not None:
            note()
        ending.is_stored.set_result(True)
        return None

    async def _gone(self, run: Run | None, leaving: Exit, asked: Sequence[PendingQuestion] = ()) -> Exit:
        """Give back a run that cannot go on here. `asked`: what it had asked, if that waits no more."""
        status = _STATUSES[leaving.how]
        if run is None or self.life is None:
            row = self.claim.row
            change = Change(
                status=status,
                why=leaving.why or None,
                asked=row.asked,
                used_s=row.used_s,
                usage=Usage(input_tokens=row.tokens, cost=row.cost),  # a row has only the sums
                attempt=row.attempt,
                iteration=row.iteration,
            )
        else:
            change = self._change(run, self.life, status, why=leaving.why or None)
            change = replace(change, asked=dump_questions(asked)) if asked else change
        # A run that becomes ready again goes through all signals anyway, so none can be missed.
        n_signals = None if status == "ready" else max(self.n_seen, self.claim.row.n_signals)
        if await self._settled(change, n_signals=n_signals):
            return leaving
        # Something was said that has not been seen here, perhaps that it is released: whoever drives it next sees it.
        change = replace(change, status="ready", why=None)
        is_ours = await self._settled(change)
        return leaving if is_ours else Exit(how="fenced", why=_ANOTHERS)

    def _change(
        self, run: Run, life: Lease, status: Status, *, why: str | None = None, wake: float | None = None
    ) -> Change:
        # Of the steps that are stored, and the place where it is: what is not kept tells nothing.
        attempt, iteration = max(life.place, (run.attempt.number, run.attempt.iteration))
        return Change(
            status=status,
            why=why,
            wake=wake,
            asked=None if status in OVER else dump_questions(life.asked),
            used_s=life.work.used_s,
            usage=run.ledger.usage + self._beyond(run),
            attempt=attempt,
            iteration=iteration,
        )

    def _beyond(self, run: Run) -> Usage:
        """Return what earlier lives have used that this one has not come to, of which the row has only the sums."""
        row, used = self.claim.row, run.ledger.usage
        lost, cost = row.tokens - used.total_tokens, max(row.cost - (used.cost or 0.0), 0.0)
        # The row has only sums: what is missing stands as input, so that limits count it.
        return Usage(input_tokens=lost, cost=cost, exact=False) if lost > 0 else NOTHING_USED

    async def _settled(self, change: Change, *, n_signals: int | None = None, posts: Signal | None = None) -> bool:
        return await patiently(
            lambda: self.here.engine.settle(self.claim, change, now=self.here.now(), n_signals=n_signals, posts=posts),
            what=f"that the run {self.claim.row.id} is {change.status}",
        )


_STATUSES: Final[dict[str, Status]] = {"blocked": "blocked", "held": "held", "released": "ready"}
"""What a run is that leaves in one of these ways."""


async def _carried(run: Run) -> Result[Any] | BaseException:
    """Return how a run ended. What ends the program is returned, too: a task that raises it ends the event loop before
    whoever waits for the task."""
    try:
        return await carry_out(run)
    except (KeyboardInterrupt, SystemExit) as error:
        return error
