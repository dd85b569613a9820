"""Keeps the events of one run, or of one turn of a chat, with numbers, for the clients that follow it.

The events are kept for a while, so that a client that was cut off can go on where it stopped. A follower never slows
the run down: it reads what is kept, at its own pace. Of a run that has ended only bytes are kept: thousands of objects
would be looked through by each full collection of garbage, and all clients wait for that.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, Generic, NamedTuple, Protocol

import orjson
from starlette.types import Message, Receive
from typing_extensions import TypeVar

from journeyman.agent import Agent
from journeyman.cancellation import Abort, Wakeup
from journeyman.chat.questions import Questions
from journeyman.definition.data import lazy_dataclass
from journeyman.definition.json_numbers import collecting_later, write_json
from journeyman.durable import Memory
from journeyman.durable.records import digest_question
from journeyman.events import (
    ApprovalAnswered,
    ApprovalRequested,
    Event,
    QuestionAnswered,
    QuestionAsked,
    RunResumed,
    RunStarted,
    TurnEnded,
    to_json,
)
from journeyman.events.json_form import to_json_list
from journeyman.gate import Decision
from journeyman.inbox.questions import UNANSWERED
from journeyman.loop.watch import Watch
from journeyman.result import Metadata, Result, dump_document, plain_output, result_document
from journeyman.session import TURN
from journeyman.tools.clear_events import ClearEvents
from journeyman.tools.collection import do_aside, is_large
from journeyman.tools.known_secrets import known_secrets

_LIFE: Final = 1 << 32
"""The numbers of events are those of a life, times this, and then from 1: they only grow."""
_MOST_AT_ONCE: Final = 256
_NOBODY: Final[frozenset[Callable[[], None]]] = frozenset()
"""One for all: each of its kind would be one more object for each run that is kept."""


@lazy_dataclass(frozen=True, kw_only=True)
class ServeLimits:
    """The limits of a server of agents for its clients. Sizes are in bytes, times in seconds."""

    runs: int = 64
    """How many runs and turns may go on at once in this process. Further clients are told to come back later (429)."""
    followers: int = 1_000
    """How many clients may follow events, or wait for a result, at once. Further clients are told to come back later
    (503)."""
    body_bytes: int = 1_000_000
    """The longest body of a request; a longer one is refused (413)."""
    run_s: float | None = None
    """How long a run may go on in this process before it is stopped. None: as long as its agent's limits allow."""
    patience_s: float = 600.0
    """How long a run that is kept in memory may wait for an answer while nobody follows it; then it is stopped."""
    kept_s: float = 300.0
    """How long the events of a run stay in memory after its end; without a store, also its result and its chat."""
    kept_runs: int = 10_000
    """How many runs that have ended stay in memory so long, and how many chats; if there are more, the oldest are
    forgotten."""
    kept_events: int = 20_000
    """How many events of a run are kept for clients that were cut off. If there are more, the oldest are dropped."""
    hook_s: float = 30.0
    """How long `authorize` and `deps` may take; then the request is refused (503)."""


@lazy_dataclass(frozen=True, kw_only=True)
class Ended:
    """The last of what is followed: how a run, or a turn, has ended."""

    code: str | None
    """None: it has not ended, but this process will not go on with it; `document` says why."""
    document: bytes
    """JSON: that of the result, or `error`."""
    metadata: Metadata | None = None
    """What it used, where that may be told again in other words."""


class Numbered(Protocol):
    """One event, as those who follow read it."""

    @property
    def number(self) -> int: ...

    def sent(self) -> bytes:
        """Return the event as it is sent to followers."""
        ...


class Sent(NamedTuple):
    """One event of what has ended: only its bytes are kept."""

    number: int
    data: bytes

    def sent(self) -> bytes:
        """Return the event as it is sent to followers."""
        return self.data


class Entry:
    """One event, as it is kept."""

    __slots__ = ("_sent", "event", "number")

    def __init__(self, number: int, event: Event | Ended) -> None:
        self.number, self.event = number, event
        self._sent: bytes | None = None

    def sent(self) -> bytes:
        """Return the event as it is sent to followers: made once for all of them."""
        if self._sent is None:
            event = self.event
            is_end = type(event) is Ended
            name, data = ("Result", event.document) if is_end else (type(event).__name__, to_json(event))
            self._sent = _write_event(self.number, name, data)
        return self._sent

    @property
    def is_written(self) -> bool:
        """True once it was made bytes."""
        return self._sent is not None


def _write_event(number: int, name: str, data: bytes) -> bytes:
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (number, name.encode(), data)


def document_of(result: Result[Any], agent: Agent[Any, Any, Any]) -> bytes:
    """Return the document of a result, as JSON."""
    output = plain_output(getattr(result, "output", None), agent.plan.outputs.kind)
    return known_secrets.mark_bytes(dump_document(result_document(result, agent=agent.name, output=output)))


E = TypeVar("E", bound=Numbered, covariant=True)


class Followed(ABC, Generic[E]):
    """A run or turn that clients can follow: its numbered events, and the number of followers."""

    def __init__(self, name: str, agent: Agent[Any, Any, Any], *, first: int) -> None:
        self.name: Final = name
        self.agent: Final = agent
        self.first = first
        """The number of the first entry."""
        self.n_followers = 0
        """Whoever follows it adds one, and calls `leave` in the end."""
        self.moved_s: float = time.monotonic()
        """When something last happened to it."""
        self.ended: Ended | None = None
        self._wakers: frozenset[Callable[[], None]] = _NOBODY

    @property
    @abstractmethod
    def last(self) -> int:
        """The number of the newest event; one less than the first, if there is none."""

    @abstractmethod
    def since(self, after: int) -> Sequence[E]:
        """Return the next events behind a number. If the next one is kept no more, what is returned begins later."""

    @abstractmethod
    async def until_over(self, receive: Receive) -> bool:
        """Wait for its end. False: the client left before."""

    def wake_by(self, waker: Callable[[], None]) -> None:
        """Call `waker` once, when there is something to look at."""
        self._wakers |= {waker}

    def forget(self, waker: Callable[[], None]) -> None:
        """Do not call `waker` any more."""
        self._wakers -= {waker}

    def leave(self) -> None:
        """Count one follower less."""
        self.n_followers -= 1
        self.moved_s = time.monotonic()


class Past(Followed[Sent]):
    """One run that has ended a moment ago, as bytes."""

    def __init__(self, live: Live, ended: Ended) -> None:
        super().__init__(live.name, live.agent, first=live.first)
        self.ended: Ended | None = Ended(code=ended.code, document=ended.document)
        self._n_entries: Final = len(live.entries)
        self._sent: tuple[bytes, ...] | None = None
        # Bytes, which no collection of garbage looks through: in one piece, since mostly nobody asks for them.
        *told, last = live.entries
        is_apart = any([each.is_written for each in told]) or type(last.event) is not Ended
        self._events: Final = None if is_apart else to_json_list([each.event for each in told])
        if self._events is None:
            with collecting_later():  # amid a large output that takes longer than all the rest
                self._sent = tuple([each.sent() for each in live.entries])

    @property
    def last(self) -> int:
        return self.first + self._n_entries - 1

    def since(self, after: int) -> Sequence[Sent]:
        if self._sent is None and self._events is not None and self.ended is not None:
            told: list[dict[str, object]] = orjson.loads(self._events)
            sent = [_write_event(self.first + n, str(each["type"]), orjson.dumps(each)) for n, each in enumerate(told)]
            self._sent = (*sent, _write_event(self.last, "Result", self.ended.document))
        start = max(after + 1 - self.first, 0)
        found = (self._sent or ())[start : start + _MOST_AT_ONCE]
        return [Sent(self.first + start + n, data) for n, data in enumerate(found)]

    async def until_over(self, receive: Receive) -> bool:
        return True


class Live(Followed[Entry]):
    """One run, or one turn of a chat, that goes on here, or only waits; or a turn that has ended a moment ago."""

    def __init__(
        self, name: str, agent: Agent[Any, Any, Any], *, base: float, is_tied: bool, limits: ServeLimits
    ) -> None:
        """`base` is the number of its life, or between two. `is_tied`: it is stopped when the last
        who follows it has left."""
        super().__init__(name, agent, first=int(base * _LIFE) + 1)
        self.is_tied = is_tied
        self.entries: list[Entry] = []
        self._next = self.first
        """The number of the next entry."""
        self.run: str = name
        """The name of the run that it is: for a chat, that of its turn."""
        self.abort: Final = Abort()
        self.answer: Callable[[str, Decision | str], None] = _no_question
        """Answers what waits in this process."""
        self._questions: Questions | None = None
        self.number = 0
        """How many runs its chat had had before it, if it is a turn."""
        self.task: asyncio.Task[None] | None = None
        """What drives it, or waits for its end."""
        self.is_driven = False
        self.is_suspended = False
        """True once it has left this process and only waits."""
        self.began_s: float = self.moved_s
        self.n_runs = 0
        """How many runs of a turn have begun."""
        self.open: dict[str, ApprovalRequested | QuestionAsked] = {}
        """What waits for an answer, by the id that clients know."""
        self.here: dict[str, str] = {}
        """The ids of those under which they wait in this process."""
        self.early: dict[str, str] = {}
        """Answers to questions that will be asked, by their texts."""
        self.over: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()
        """Done when it has ended, or begun to be gone on with elsewhere only."""
        self._waiting: frozenset[Callable[[], None]] = _NOBODY
        """Called at its end, a step of the loop earlier than by what is done then; and each second, as a timer for each
        of them would cost more than most runs have to wait."""
        self._n_kept: Final = limits.kept_events
        self._most: Final = limits.kept_events + limits.kept_events // 4
        self._clear: Final = ClearEvents()

    def ask_here(self) -> Questions:
        """Return what asks those who follow, as long as it goes on: one for all its questions."""
        if self._questions is None:
            self._questions = Questions(Watch(path=(self.agent.name,), listeners=[self.hear]))
            self.answer = self._questions.answer
        return self._questions

    def hear(self, event: Event) -> None:
        """Take in the next event."""
        if type(event) not in _LOOKED_AT and known_secrets.current() is None:
            self._keep(event)
            return
        match event:
            case ApprovalRequested() | QuestionAsked():
                is_approval = isinstance(event, ApprovalRequested)
                id = event.question_id if is_approval else digest_question(event.path, event.question)
                self.here[id] = event.id
                if id in self.open:  # asked again in another life
                    return
                event = self.open[id] = replace(event, id=id)
                if isinstance(event, QuestionAsked) and event.question in self.early:
                    asyncio.get_running_loop().call_soon(self.answer_here, id, self.early[event.question])
            case ApprovalAnswered() | QuestionAnswered():
                id = next((known for known, here in self.here.items() if here == event.id), None)
                if id is None:
                    return
                del self.here[id]
                is_said = event.answer if isinstance(event, QuestionAnswered) else event.reason != UNANSWERED
                if not is_said and not self.abort.aborted:  # it leaves the memory, and waits anyway
                    return
                self.open.pop(id, None)
                event = replace(event, id=id)
            case RunStarted() | RunResumed() if len(event.path) == 1:
                self.n_runs += 1
            case TurnEnded(result=None):  # it goes on: later, or elsewhere
                return
            case _:
                pass
        self._add(event)

    async def end(self, result: Result[Any]) -> None:
        """Note how it has ended."""
        output = getattr(result, "output", None)
        if is_large(output):  # its event is made bytes for whoever comes later, which takes as long as the document
            await do_aside(output, lambda _: [each.sent() for each in self.entries])
        document = await do_aside(output, lambda _: document_of(result, self.agent))
        self._close(Ended(code=result.code, document=document, metadata=result.metadata))

    def fail(self, code: str, message: str, hint: str) -> None:
        """Note that it will not be gone on with here."""
        error = {"error": {"code": code, "message": message, "hint": hint}}
        self._close(Ended(code=None, document=write_json(error)))

    def _close(self, ended: Ended) -> None:
        if self.ended is None:
            self.ended = ended
            self.is_driven = False
            self.open.clear()
            self.answer, self._questions = _no_question, None  # its chat would be kept with it
            self._keep(ended)
            self.over.set_result(None)
            self.wake_waiting()

    def _add(self, event: Event) -> None:
        """Keep what those who follow are told: without secrets that are known by their text, also over two pieces."""
        if known_secrets.current() is None:
            self._keep(event)
        else:
            for each in self._clear.clear(event):
                self._keep(each)

    def _keep(self, event: Event | Ended) -> None:
        self.moved_s = time.monotonic()
        self.entries.append(Entry(self._next, event))
        self._next += 1
        if len(self.entries) > self._most:
            del self.entries[: -self._n_kept]
            self.first = self.entries[0].number
        if self._wakers:
            wakers, self._wakers = self._wakers, _NOBODY
            for wake in wakers:
                wake()

    @property
    def last(self) -> int:
        return self.entries[-1].number if self.entries else self.first - 1

    def since(self, after: int) -> Sequence[Entry]:
        start = bisect_right(self.entries, after, key=lambda entry: entry.number)
        return self.entries[start : start + _MOST_AT_ONCE]

    def begin_life(self, base: float) -> None:
        """Note that it is gone on with here. Its events get higher numbers than those of any life before."""
        self._next = max(self._next, int(base * _LIFE) + 1)
        if not self.entries:
            self.first = self._next
        self.n_runs, self.began_s = 0, time.monotonic()

    def note_asked(self, event: ApprovalRequested | QuestionAsked) -> None:
        """Take in that something waits for an answer elsewhere."""
        self._add(self.open.setdefault(event.id, event))

    def withdraw(self, answered: ApprovalAnswered | QuestionAnswered) -> None:
        """Take in that a question, which waited elsewhere, waits no more."""
        if self.open.pop(answered.id, None) is not None:
            self._add(answered)

    def leave(self) -> None:
        super().leave()
        if self.is_tied and not self.n_followers and self.ended is None and not self.open:
            self.abort.abort("the client left")

    async def until_over(self, receive: Receive) -> bool:
        leaving, woken = None, Wakeup()
        self._waiting |= {woken.call}
        self.n_followers += 1
        try:
            if self.ended is None and self.is_driven:
                await woken.wait()  # for its end, or until the server has looked at all that goes on
            if self.ended is None:
                leaving = asyncio.ensure_future(until_gone(receive))
                leaving.add_done_callback(woken.call)
            while leaving is not None and self.ended is None and not leaving.done():
                await woken.wait()
            return self.ended is not None
        finally:
            self._waiting -= {woken.call}
            if leaving is not None:
                leaving.cancel()
            self.leave()

    def wake_waiting(self) -> None:
        """Let those who wait for its end look at it, and at whether their clients are still there."""
        for wake in self._waiting:
            wake()

    def answer_here(self, id: str, answer: Decision | str) -> bool:
        """Answer what waits in this process. False: nothing waits here under this id."""
        here = self.here.get(id)
        if here is None:
            return False
        try:
            self.answer(here, answer)
        except KeyError:
            return False
        return True


_LOOKED_AT: Final = frozenset(
    {ApprovalRequested, QuestionAsked, ApprovalAnswered, QuestionAnswered, RunStarted, RunResumed, TurnEnded}
)
"""The events that are more than something to tell."""


def _no_question(id: str, answer: Decision | str) -> None:
    raise KeyError(id)


async def until_gone(receive: Receive) -> None:
    """Wait until the client has closed the connection."""
    message: Message = {"type": ""}
    while message["type"] != "http.disconnect":
        message = await receive()


class KeptRuns:
    """All that is followed, or could be. It is used from one event loop."""

    def __init__(self, limits: ServeLimits) -> None:
        self._limits: Final = limits
        self._lives: dict[str, Live] = {}
        """Runs by their names, chats by the ids of their sessions after `TURN`."""
        self._past: dict[str, Past] = {}
        """Runs that have ended, by their names."""
        self._going: dict[Live, str] = {}
        """Those that requests drive, each with its name in `_lives`: only these are looked at each second."""
        self._idle: dict[Live | Past, tuple[str, float]] = {}
        """Those that have ended, only wait in the store, or are driven elsewhere, each with its name and since when
        nothing has happened to it; the oldest first."""
        self._chat_used_s: dict[str, float] = {}
        """When chats that are kept in memory were last used; the oldest first."""
        self._gone: list[str] = []
        """The names of runs of which nothing is kept any more, since the store was last told."""
        self.keys: Final[dict[str, tuple[str, str]]] = {}
        """Of chats, the key of the newest turn, and what it was asked."""

    def clear(self) -> None:
        """Forget everything, as before it was opened."""
        for kept in (self._lives, self._past, self._going, self._idle, self._chat_used_s, self._gone, self.keys):
            kept.clear()

    def __iter__(self) -> Iterator[Live]:
        return iter(self._lives.values())

    def get(self, name: str) -> Live | None:
        """Return the run or turn of a name, unless only its end is kept."""
        return self._lives.get(name)

    def find_past(self, name: str) -> Past | None:
        """Return the run of this name, if it has ended."""
        return self._past.get(name)

    def find_followed(self, name: str) -> Live | None:
        """Return the run or turn that is followed under a name, unless it was left: somebody may go on with that."""
        live = self._lives.get(name)
        return None if live is None or (live.ended is not None and live.ended.code is None) else live

    def add(self, name: str, live: Live) -> Live:
        """Let something be found under a name, instead of what was before it."""
        for before in self._find(name):
            self.drop(name, before)
        self._lives[name] = live
        self._going[live] = name
        return live

    def settle(self, name: str, live: Live) -> None:
        """Keep only bytes of a run that has ended. Whoever follows it reads on in what there was."""
        if live.ended is not None and self._lives.get(name) is live:
            self.drop(name, live)
            past = self._past[name] = Past(live, live.ended)
            self._idle[past] = name, past.moved_s

    def _find(self, name: str) -> list[Live | Past]:
        return [each for each in (self._lives.get(name), self._past.get(name)) if each is not None]

    def drop(self, name: str, kept: Live | Past) -> bool:
        """Let something be found no more under its name. False: another one is found there."""
        if isinstance(kept, Live):
            self._going.pop(kept, None)
        self._idle.pop(kept, None)
        known: dict[str, Any] = self._past if isinstance(kept, Past) else self._lives
        if known.get(name) is not kept:
            return False
        del known[name]
        return True

    def forget(self, name: str) -> None:
        """Forget what has ended here under the name of a run, or of a chat after `TURN`."""
        for each in self._find(name):
            self.drop(name, each)
        self.keys.pop(name, None)
        self._chat_used_s.pop(name.removeprefix(TURN), None)

    def use_chat(self, id: str) -> None:
        """Note that a chat was used now."""
        self._chat_used_s.pop(id, None)
        self._chat_used_s[id] = asyncio.get_running_loop().time()

    def look(self, look_at: Callable[[Live, float], None]) -> None:
        """Look at each that requests drive, with the time; then forget what was not used for long, and the oldest of
        what is too much."""
        now_s = asyncio.get_running_loop().time()
        for live, name in list(self._going.items()):
            if live.is_driven:
                look_at(live, now_s)
            else:
                del self._going[live]
                self._idle[live] = name, live.moved_s
        self._forget_idle(now_s)

    def _forget_idle(self, now_s: float) -> None:
        kept_s, most = self._limits.kept_s, self._limits.kept_runs
        for live in list(self._idle):
            name, since_s = self._idle[live]
            if now_s - since_s <= kept_s and len(self._idle) <= most:
                break
            del self._idle[live]
            if isinstance(live, Live) and live.is_driven:
                self._going[live] = name
            elif live.n_followers or (live.moved_s > since_s and len(self._idle) < most):
                self._idle[live] = name, now_s if live.n_followers else live.moved_s
            else:
                if isinstance(live, Live) and live.task is not None and live.ended is None:
                    live.task.cancel()  # it waits for its end, which nobody wants to know any more
                if self.drop(name, live):
                    self.keys.pop(name, None)
                    if isinstance(live, Past):
                        self._gone.append(name)

    def forget_stored(self, memory: Memory, *, now: float) -> None:
        """Forget runs and chats that are stored in memory only. `now` is the time by the clock of the runs."""
        for name in self._gone:  # the result of a run is kept here alone
            if (row := memory.find(name)) is not None and row.id in memory.over:
                memory.drop(row.id)
        self._gone.clear()
        memory.forget_ended(before=now - self._limits.kept_s, most=self._limits.kept_runs)
        now_s = asyncio.get_running_loop().time()
        for id in list(self._chat_used_s):
            is_much = len(self._chat_used_s) > self._limits.kept_runs
            if now_s - self._chat_used_s[id] <= self._limits.kept_s and not is_much:
                return
            live = self._lives.get(TURN + id)
            if live is None or (is_much and live.ended is not None and not live.n_followers):
                del self._chat_used_s[id]
                memory.said.forget(id)
            else:
                self.use_chat(id)
