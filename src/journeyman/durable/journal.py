"""The journal of a durable run that is driven here.

All records of the run are in memory; what is new is written through the engine, if the run is still ours. A step that
cannot be taken because the run must leave this process does not return: `leave` is told why, and whoever drives the run
takes it down.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from json import dumps, loads
from sys import intern
from typing import Any, Final, Literal, NoReturn, Protocol, TypeAlias, TypeVar

from typing_extensions import Unpack

from journeyman.cancellation import current_scope, end_wait
from journeyman.chat.questions import Questions
from journeyman.definition.data import lazy_dataclass
from journeyman.durable.asking import answer_event, asked_event, question_in_words, question_of_approval, read_answer
from journeyman.durable.engine import Engine, WriteOptions
from journeyman.durable.records import (
    BEGUN,
    DONE,
    Claim,
    Record,
    Row,
    StepState,
    check_record,
    dump_questions,
    pack_step,
    questions_of,
    record_of_step,
    taken_by,
    unpack_step,
)
from journeyman.errors import OutcomeUnknown, RunBlocked, StoreError
from journeyman.gate import DECISION, Approval, Decision
from journeyman.inbox.questions import Elsewhere
from journeyman.inbox.signals import PendingQuestion, Signal
from journeyman.journal import (
    About,
    Codec,
    Journal,
    Lives,
    RecordingSink,
    Reservation,
    SentRuns,
    StepFacts,
    decode_step,
    encode_step,
)
from journeyman.step import RunStep
from journeyman.texts import shorten_line
from journeyman.tools.external import external_question
from journeyman.types import Effect, JsonObject, Message, RunPath

T = TypeVar("T")
_AskHere: TypeAlias = Callable[..., Coroutine[Any, Any, Decision | str | None]]
"""Asks the user of a chat who is here; it is given those who are asked elsewhere."""

_log = logging.getLogger("journeyman")
# It bounds how often a store that is away is asked.
_AGAIN_S: Final = 1.0
# In tries of one second each: the log says that a run waits, and is not filled by it.
_SAID_EACH: Final = 30
_QUESTION_SHOWN: Final = 200
_catch_nothing: Final = partial(asyncio.sleep, 0)


@lazy_dataclass(frozen=True, kw_only=True)
class Exit:
    """The reason why a run cannot stay in this process."""

    how: Literal["fenced", "suspended", "held", "blocked", "lost", "released"]
    why: str = ""
    error: BaseException | None = None
    history: tuple[Message, ...] = ()
    """The conversation of a run that is suspended."""


class Departure:
    """Tells what goes on of a run after the run has left this process, such as its work in the background, that it has.
    That fails with its next step: the next life of the run begins it again, or goes on with it."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._event = asyncio.Event()

    def happen(self) -> None:
        """Note that the run has left."""
        self._event.set()

    async def wait(self) -> None:
        """Wait until it has left."""
        await self._event.wait()

    def check(self) -> None:
        """Raise a `StoreError` if it has left."""
        if self._event.is_set():
            raise self.error()

    def error(self) -> StoreError:
        return StoreError(
            f"The run {self._run} has left this process, and what it began in the background ends with it.",
            hint="Go on with the run: that begins this work again, or goes on with it.",
        )


@lazy_dataclass()
class KnownStep:
    """A step as it is stored."""

    kind: str
    at: tuple[int, int]
    """The attempt and the iteration of the outermost run."""
    about: bytes | None
    epoch: int
    used_s: float
    value: bytes | None = None
    """None: it was begun."""


class WorkTime:
    """The time in which a run has worked in all its lives, in seconds: without that in which it waited."""

    def __init__(self, used_s: float) -> None:
        """It has worked for so long in earlier lives, and begins to work."""
        self._clock = asyncio.get_running_loop().time
        self._used_s, self._works = used_s, True
        self._moved_s = self._clock()

    def move(self, *, waits: bool) -> None:
        """Note that something has happened in the run, and whether it waits from now on."""
        self._used_s, self._moved_s, self._works = self.used_s, self._clock(), not waits

    @property
    def used_s(self) -> float:
        return self._used_s + (self.still_s if self._works else 0.0)

    @property
    def still_s(self) -> float:
        """The seconds in which nothing has happened in it."""
        return self._clock() - self._moved_s


class RunProcess(Protocol):
    """The process in which runs are driven, as their journals use it."""

    @property
    def engine(self) -> Engine: ...
    @property
    def now(self) -> Callable[[], float]:
        """The wall clock, in seconds since 1970."""
        ...

    @property
    def keeps_steps(self) -> bool:
        """False: each run has one life, and a task of its own. Then nothing needs to be stored of its steps."""
        ...

    async def look(self) -> bool:
        """Deliver what was sent to the runs that are driven here. Return whether there was something."""
        ...


class Edge:
    """The moment in which a run is where it was in its last life: what came before it waits for it."""

    def __init__(self) -> None:
        self._work: Callable[[], None] | None = None

    @property
    def is_awaited(self) -> bool:
        """True when there is something to do then."""
        return self._work is not None

    def wait_for(self, work: Callable[[], None]) -> None:
        """Do this then, in place of what was to be done before."""
        self._work = work

    def reach(self) -> bool:
        """Do what was to be done. Return whether there was something."""
        work, self._work = self._work, None
        if work is not None:
            work()
        return work is not None


class Lease:
    """One life of a run in this process: what is known of its steps, and what is written under its claim."""

    def __init__(
        self,
        here: RunProcess,
        claim: Claim,
        records: Sequence[Record],
        *,
        leave: Callable[[Exit], None],
        stir: Callable[[], None],
        stored: Callable[[str, int, float], None] | None = None,
        accepts: bool = False,
    ) -> None:
        """`leave` is told why the run cannot go on; `stir` lets its driver look at it. `stored` gets the key, the size
        in bytes and the seconds of each step that was written. `accepts`: a stored answer counts, whatever it was the
        answer to.

        Raises:
            RunBlocked: the records cannot be read.
        """
        self.engine: Final = here.engine
        self.claim: Final = claim
        self.keeps_steps: Final = here.keeps_steps
        self.now: Final = here.now
        self.used_up: set[int] = set()
        """The numbers of the signals that steps have taken."""
        self.edge: Final = Edge()
        self.n_working = 0
        """The steps that are under way."""
        self.questions: dict[str, PendingQuestion] = {}
        """What waits for an answer, by the key of its step."""
        self.rests = False
        """True while the run has its answer, and waits for what may still be said to it."""
        self.answered: set[str] = set()
        """The keys of the questions that wait no more, though their answers may not be stored yet."""
        self.known: dict[str, KnownStep] = {}
        """What is stored of the steps, by their keys."""
        self.deaths = {claim.epoch: claim.row.deaths}
        """The number of lives in a row that had died when a life began that has stored something, by its epoch."""
        self._look, self._leave, self._stir, self._stored = here.look, leave, stir, stored
        self._accepts = accepts
        self._is_open = asyncio.Event()
        self._is_open.set()
        self.departure = Departure(claim.row.id)
        for each in records:
            self._learn(each)
        self._asked_before = {each.key: each for each in questions_of(claim.row) if each.key not in self.known}
        """The questions of the last life that this one has not come to yet. They may be answered all the time."""
        self.noting = asyncio.Lock()
        """Held while what the run waits for is written: an older note must not replace a newer one."""
        # The most that any step says: the row is behind when a process died.
        self.work = WorkTime(max([claim.row.used_s, *[known.used_s for known in self.known.values()]]))

    def _learn(self, each: Record) -> None:
        check_record(each)
        place = (each.attempt, each.iteration)
        # A store gives each row texts of its own, of which a long run has few different ones.
        known = self.known.setdefault(
            each.key, KnownStep(intern(each.kind), place, each.about, each.epoch, each.used_s)
        )
        if each.state == DONE:
            value = unpack_step(each)
            # Read now, where the run can be blocked before anything is done.
            try:
                decode_step(value)
            except ValueError as error:
                raise RunBlocked(each.run, f"its step {each.key} is damaged: {error}") from error
            known.value, known.about, known.used_s, known.epoch = value, each.about, each.used_s, each.epoch
            if each.deaths and each.epoch:  # 0: it is a step of the run that this one was forked from
                self.deaths[each.epoch] = each.deaths
        self.used_up.update(taken_by(each))

    def close(self) -> None:
        """Let no step begin until it is opened again."""
        self._is_open.clear()

    def open(self) -> None:
        """Let steps begin."""
        self._is_open.set()

    async def opened(self) -> None:
        """Wait until steps may begin."""
        self.departure.check()
        if self.edge.reach():
            # One step of the loop: what the word to stop has fired reaches the task before the next step begins.
            await asyncio.sleep(0)
        try:
            has_come = await self._look()
        except StoreError as error:
            if not error.may_pass:
                await self.leave(Exit(how="lost", why=str(error), error=error))
            has_come = False  # whoever polls says that the store cannot be read
        if has_come:
            await asyncio.sleep(0)  # a word to stop is heeded before anything begins
        if not self._is_open.is_set():
            await self._is_open.wait()
            self.departure.check()

    async def leave(self, leaving: Exit) -> NoReturn:
        """Say why the run cannot go on here, and wait to be taken down."""
        self.close()
        self._leave(leaving)
        await self.departure.wait()
        raise self.departure.error()

    async def check(self, key: str, known: KnownStep, about: About | None) -> None:
        """Leave if a stored answer is to something else than is asked now."""
        # A digest takes a while: it is made only where both sides have one.
        if self._accepts or known.about is None or about is None or about() == known.about:
            return
        is_of_model = known.kind in ("model", "compaction")
        place = "the model is asked something else" if is_of_model else "the call is another one"
        await self.leave(Exit(how="blocked", why=f"at {key}, {place} than when its stored answer was given"))

    def is_idle_for(self, seconds: float) -> bool:
        """Tell whether nothing but questions, or what may still be said, has been open for so long."""
        waits = self.rests or bool(self.questions)
        only_waits = waits and self.answered.isdisjoint(self.questions) and not self.n_working
        return only_waits and self.work.still_s >= seconds

    @contextmanager
    def resting(self) -> Generator[None]:
        """Let the run wait in this block for what may be said to it. Nothing else of it goes on."""
        self.rests = True
        self._move()
        self._stir()
        try:
            yield
        finally:
            self.rests = False
            self._move()

    def _move(self) -> None:
        """Note that something has happened in the run, and whether it waits now."""
        # Neither the hours until somebody answers nor those in which nothing is said are work.
        self.work.move(waits=self.rests or bool(self.questions))

    @property
    def place(self) -> tuple[int, int]:
        """The attempt and the iteration of the newest step of the run itself."""
        return max((known.at for known in self.known.values()), default=(0, 0))

    async def put(
        self,
        step: RunStep,
        state: StepState,
        *,
        effect: Effect,
        value: bytes | None,
        about: bytes | None = None,
        taken: Sequence[int] = (),
        **options: Unpack[WriteOptions],
    ) -> bytes | None:
        """Write a record, and the things that the options name. Return the value that is stored: that of a late write
        of an earlier life, if there is one.

        What cannot be written because of what may pass is tried again, and said; it is never an end of the run.

        Raises:
            StepTooLarge: nothing was written.
        """
        claim, key = self.claim, step.key
        body = None if value is None else pack_step(value, key=key)
        at, used_s = self.now(), self.work.used_s
        made = record_of_step(
            claim, step, state, effect=effect, about=about, taken=taken, body=body, at=at, used_s=used_s
        )
        began_s = asyncio.get_running_loop().time()
        given: WriteOptions = {"is_synced": state == BEGUN, **options}
        try:
            written = await patiently(lambda: self.engine.write(claim, made, **given), what=f"the step {key}")
        except StoreError as error:
            await self.leave(Exit(how="lost", why=str(error), error=error))
        if self._stored is not None and written == "written":
            self._stored(key, len(body or b""), asyncio.get_running_loop().time() - began_s)
        if written == "fenced":
            await self.leave(Exit(how="fenced", why="somebody else drives it now"))
        if written == "taken":
            known = await self.engine.records(claim.row.id)
            self._learn(next(each for each in known if (each.key, each.state) == (key, state)))
        else:
            self.known[key] = KnownStep(step.kind, step.at, about, claim.epoch, made.used_s, value)
            self.used_up.update(taken)
        self._move()
        return self.known[key].value

    async def ask(self, question: PendingQuestion) -> None:
        """Note a question, in the row of the run too, so that others can see it, and answer."""
        self.questions[question.key] = question
        self._move()
        self._stir()
        log_question(self.claim.row, question)
        await self._note()

    async def settle(self, key: str) -> None:
        """Note that a question is answered."""
        self.withdraw(key)
        await self._note()

    def withdraw(self, key: str) -> None:
        """Let a question wait no more."""
        self._asked_before.pop(key, None)
        self.questions.pop(key, None)
        self._move()

    @property
    def asked(self) -> tuple[PendingQuestion, ...]:
        """What waits for an answer, with what an earlier life has asked and this one has not come to yet."""
        return tuple({**self._asked_before, **self.questions}.values())

    async def _note(self) -> None:
        async with self.noting:
            try:
                await self.engine.note(self.claim, dump_questions(self.asked))
            except StoreError as error:
                # The run goes on to wait: the next question or answer notes all of it again.
                _log.warning("What the run waits for could not be noted, so nobody can answer it yet: %s", error)


def log_question(row: Row, question: PendingQuestion) -> None:
    """Log what a run waits for, and how to answer: the program that waits with it looks as if it hung."""
    asked = shorten_line(question.question, _QUESTION_SHOWN)
    what = f"a decision about {question.tool} ({asked})" if question.kind == "approve" else f"an answer to: {asked}"
    verb, value = ("approve", "Allow()") if question.kind == "approve" else ("answer", "text")
    name, question_id = row.name or row.id, question.question_id[:12]
    how = f"await (await durable.get({name!r})).{verb}({question_id!r}, {value})"
    _log.info("The run %s of %s waits for %s. Answer from any process: %s", name, row.agent, what, how)


class RunJournal(Journal):
    """The journal of one run, and of the runs below it, in one of its lives."""

    def __init__(
        self,
        life: Lease,
        lives: Lives | None = None,
        *,
        sent: SentRuns | None = None,
        tape: RecordingSink | None = None,
        ask_here: Callable[[], Questions] | None = None,
        catch_up: Callable[[], Awaitable[None]] = _catch_nothing,
        take_heard: Callable[[], Sequence[int]] = tuple,
        note_late: Callable[[Signal, str], None] = lambda signal, why: None,
    ) -> None:
        """The journal of what happens in a life.

        Args:
            life: The life.
            lives: Tells which steps are new in it.
            sent: What the run has sent out.
            tape: Takes down what is asked of somebody elsewhere, and how it is answered.
            ask_here: Returns where the user of a chat is asked who is here; whoever answers first, here or elsewhere,
                is heard.
            catch_up: Takes in hand all answers that are stored.
            take_heard: Returns the numbers of the signals that what was just said has taken, once.
            note_late: Is told of an answer that came too late, and why.
        """
        self.life = life
        self._lives = lives or Lives()
        self._sent = sent
        self._tape = tape
        self._ask_here = ask_here
        self._catch_up, self.take_heard, self._note_late = catch_up, take_heard, note_late
        self._answers: dict[str, Signal] = {}
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._asked_before = {each.key: each for each in questions_of(life.claim.row)}

    @property
    def _questions(self) -> Questions | None:
        return None if self._ask_here is None else self._ask_here()

    @property
    def sent(self) -> SentRuns | None:
        return self._sent

    def name(self, step: RunStep) -> str:
        return f"{self.life.claim.row.id}/{step.key}"

    @property
    def waits(self) -> bool:
        return True

    def reserve(self, step: RunStep, *, effect: Effect, about: About | None = None) -> Reservation:
        return _Reserved(self, self.life, step, effect, about)

    def begin_life(self, prefix: str = "") -> float:
        self._lives.begin(prefix, [key for key in self.life.known if key.startswith(prefix)])
        return self.life.work.used_s if not prefix else self._used_below(prefix)

    def _used_below(self, prefix: str) -> float:
        """Return how long a run below has worked: in each life, from its first record to its last."""
        lives: dict[int, list[float]] = {}
        for key, known in self.life.known.items():
            if key.startswith(prefix):
                lives.setdefault(known.epoch, []).append(known.used_s)
        return sum([max(times) - min(times) for times in lives.values()])

    def stored(self, prefix: str = "") -> Iterator[tuple[str, bytes | None]]:
        # What an earlier life has asked is known, without a value: a call that has asked somebody was begun.
        known = {**dict.fromkeys(self._asked_before, b""), **{key: each.value for key, each in self.life.known.items()}}
        return ((key, value) for key, value in known.items() if key.startswith(prefix))

    def is_replaying(self, prefix: str = "") -> bool:
        return self._lives.is_replaying(prefix)

    def n_cut_calls(self, prefix: str = "") -> int:
        known, deaths = self.life.known, self.life.deaths
        last = max([each.epoch for key, each in known.items() if key.startswith(prefix)], default=0)
        n_since = sum([n for epoch, n in deaths.items() if epoch > last])
        return max(0, min(n_since, sum(deaths.values()) - 1))

    def go_live(self, key: str) -> None:
        """Be told that a step is new."""
        self._lives.go_live(key)

    async def wait(self, step: RunStep, approval: Approval, *, expires_s: float | None) -> Decision | None:
        question, here = question_of_approval(step, approval), self._questions
        asking = None if here is None or not here.watch.is_heard else partial(here.approve, approval)
        value = await self._asked(step, question, "decision", expires_s=expires_s, here=asking)
        return None if value is None else await self.decoded(step.key, decode_step(value)[1], DECISION)

    async def ask(
        self, path: RunPath, question: str, options: Sequence[str], *, call: RunStep | None = None
    ) -> str | None:
        """Let somebody answer a question of the model, in this life of the run or a later one. None: not every call
        may be made again, and this one may not."""
        if call is None:
            return None
        asked = question_in_words(path, question, call)
        self.life.n_working -= 1  # its call only waits
        try:
            return await self._answer_in_words(replace(asked, options=tuple(options)), call)
        finally:
            self.life.n_working += 1

    async def give_result(self, path: RunPath, tool: str, arguments: dict[str, object], *, call: RunStep) -> str | None:
        """Let somebody answer with the result of an external call, in this life of the run or a later one."""
        asked = question_in_words(path, external_question(call.call or ""), call)
        given: JsonObject = {**arguments}  # pyright: ignore[reportAssignmentType] - read from JSON by a schema
        return await self._answer_in_words(replace(asked, tool=tool, arguments=given), call)

    async def _answer_in_words(self, asked: PendingQuestion, call: RunStep) -> str | None:
        """Return the answer to a question, once it is there."""
        path, question, options = asked.path, asked.question, asked.options
        scope, here = current_scope.get(), self._questions
        asking = None
        if here is not None and here.watch.is_heard:
            asking = partial(here.ask, path, question, options, call=call)
        async with nullcontext() if scope is None else scope.pause_deadlines():
            step = replace(call, key=asked.key, kind="answer")
            value = await self._asked(step, asked, "text", expires_s=None, here=asking)
        return None if value is None else str(loads(decode_step(value)[1]))

    async def _asked(
        self, step: RunStep, question: PendingQuestion, field: str, *, expires_s: float | None, here: _AskHere | None
    ) -> bytes | None:
        """Wait for the answer to a question, and return the step of that field of it, as it is stored; None: time is
        up."""
        life, key = self.life, step.key
        known = life.known.get(key)
        if known is not None and known.value is not None:
            return None if decode_step(known.value)[1] == _EXPIRED else known.value
        await life.opened()
        # The time runs from when it was first asked: a question must not begin again with each life.
        before = self._asked_before.get(key)
        expires_at = None if expires_s is None else life.now() + expires_s
        if before is not None:
            expires_at = before.expires_at
        # Whoever is asked here is told by a chat's own events.
        tape = self._tape if here is None else None
        if tape is not None:
            tape.hear(asked_event(question, question.key))
        signal = await self._wait_for_answer(replace(question, expires_at=expires_at), here)
        if tape is not None and (answered := answer_event(question, signal)) is not None:
            tape.hear(answered)
        life.answered.add(key)
        said = _EXPIRED if signal is None else dumps(signal.body.get(field)).encode()
        value = encode_step(said, StepFacts(kind=step.kind))
        self.go_live(key)
        heard = self._answers.get(key)  # also one that came too late: no later life is to hear it
        taken = [] if heard is None else [heard.n]
        await life.put(step, DONE, effect="pure", value=value, taken=taken)
        await life.settle(key)
        return None if signal is None else value

    async def _wait_for_answer(self, question: PendingQuestion, here: _AskHere | None) -> Signal | None:
        """Ask, and wait for the answer that is given in time, here or elsewhere."""
        key, found = question.key, list[Signal | None]()

        async def wait_elsewhere() -> Decision | str | None:
            await self.life.ask(question)
            found.append(await self._answer(key, question.expires_at))
            with suppress(ValueError):  # what cannot be read blocks the run, once it is stored
                return None if found[0] is None else read_answer(question, found[0])
            return None

        try:
            if here is None:
                await wait_elsewhere()
            else:
                await here(elsewhere=Elsewhere(wait_elsewhere, partial(self._store_answer, question)))
            return found[0] if found else await self._answer(key, question.expires_at)
        except BaseException:
            self.life.withdraw(key)
            raise

    async def _store_answer(
        self, question: PendingQuestion, answer: Decision | str, who: str
    ) -> tuple[Decision | str, str]:
        """Store what was answered here as a signal: the store says who was first."""
        life, key = self.life, question.key
        if key not in self._answers:
            body: JsonObject = (
                {"text": answer} if isinstance(answer, str) else {"decision": DECISION.document_of(answer)}
            )
            body["digest"] = question.question_id
            given = Signal(0, life.claim.row.id, question.kind, key, body, life.now(), who)
            try:
                await patiently(lambda: life.engine.signal(given), what="what was answered here")
            except StoreError as error:
                await life.leave(Exit(how="lost", why=str(error), error=error))
            await self._catch_up()
        first = self._answers.get(key)
        return (answer, who) if first is None else (read_answer(question, first) or answer, first.who)

    async def _answer(self, key: str, expires_at: float | None) -> Signal | None:
        """Wait for an answer that was given in time, whenever this life comes to look at it. None: there is none."""
        while key not in self._answers:
            # By the clock of the day, which the next process shares.
            left_s = None if expires_at is None else expires_at - self.life.now()
            if left_s is not None and left_s <= 0:
                await self._catch_up()  # it may have been given in the last moment, and not be here yet
                break
            waiting = self._waiting[key] = asyncio.get_running_loop().create_future()
            leaving = asyncio.ensure_future(self.life.departure.wait())
            try:
                await asyncio.wait((waiting, leaving), timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            finally:
                leaving.cancel()
            self.life.departure.check()
        signal = self._answers.get(key)
        # By when it was given, not by when it is looked at: the process may have been down in between.
        if signal is None or expires_at is None or signal.at < expires_at:
            return signal
        self._note_late(signal, f"the question had expired {signal.at - expires_at:,.0f} s before")
        return None

    def answer(self, signal: Signal) -> None:
        """Give the answer to a question."""
        self._answers[signal.dedup] = signal
        self.life.answered.add(signal.dedup)
        end_wait(self._waiting.get(signal.dedup))

    async def decoded(self, key: str, value: bytes, codec: Codec[T]) -> T:
        """Return the value of a step. What does not fit what this program takes it for blocks the run."""
        try:
            return codec.decode(value)
        except (ValueError, TypeError) as error:
            why = f"its step {key} cannot be read: {str(error).splitlines()[0]}"
            await self.life.leave(Exit(how="blocked", why=why))


_EXPIRED: Final = b"null"


@lazy_dataclass()
class _Reserved:
    """The place of one step."""

    journal: RunJournal
    life: Lease
    made: RunStep
    effect: Effect
    about: About | None = None

    @property
    def is_known(self) -> bool:
        return self.made.key in self.life.known

    async def step(self, work: Callable[[], Awaitable[T]], *, codec: Codec[T]) -> T:
        life, known = self.life, self.life.known.get(self.made.key)
        if known is not None:
            await life.check(self.made.key, known, self.about)
            # WriteOptions for calls that are no longer `once` today: what was begun then may have had its effect.
            if known.value is None:  # only of what must not be done twice it is stored that it was begun
                raise OutcomeUnknown(self.made.key)
            return await self.journal.decoded(self.made.key, known.value, codec)
        await life.opened()
        # Before the work: whoever listens hears that the run goes on before anything of it happens.
        self.journal.go_live(self.made.key)
        life.n_working += 1
        try:
            if not life.keeps_steps and not self._says:
                return await work()
            # Before the work, since the arguments and the conversation may have changed by its end.
            about = None if self.about is None else self.about()
            # On the disk before the call: after a power cut, nobody could otherwise tell that the effect may be there.
            if self.effect == "once":
                await self._put(BEGUN, None, about)
            value = await work()
            data = codec.encode(value)
            stored = await self._put(DONE, data, about)
        finally:
            life.n_working -= 1
        # A late write of an earlier life has won: its value stands in the journal, so it is the one to go on with.
        return value if stored is None or stored == data else await self.journal.decoded(self.made.key, stored, codec)

    @property
    def _says(self) -> bool:
        """True for a step in which the run is told something, and may take signals with it."""
        return self.made.kind == "said"

    async def settle(self, value: T, *, codec: Codec[T]) -> None:
        self.journal.go_live(self.made.key)
        if self.life.keeps_steps or self._says:
            await self._put(DONE, codec.encode(value), None if self.about is None else self.about())

    async def _put(self, state: StepState, value: bytes | None, about: bytes | None) -> bytes | None:
        # What is said and which signals it has taken is one write: a death in between would say them twice, or never.
        taken = self.journal.take_heard() if value is not None and self._says else ()
        return await self.life.put(self.made, state, effect=self.effect, value=value, about=about, taken=taken)


async def patiently(work: Callable[[], Awaitable[T]], *, what: str) -> T:
    """Do what has to be read or written; again, as long as what keeps it from being done may pass. The log says so.

    Raises:
        StoreError: it will not pass.
    """
    n_tries = 0
    while True:
        try:
            return await work()
        except StoreError as error:
            if not error.may_pass:
                raise
            if n_tries % _SAID_EACH == 0:
                _log.warning("The store of the runs cannot be used. This is tried again: %s: %s", what, error)
            n_tries += 1
        await asyncio.sleep(_AGAIN_S)
