"""The memory of finished steps, so that a run that died can go on where it was.

A step is a model call, a tool call, or something else that the conversation depends on and code outside of the loop
decides. Its key says where in the run it stands. What a journal stores is JSON.

A run that is begun again with the journal of an earlier life replays: what is known is not done again, and nobody is
told of it again. With the first step that is not known it is live.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import field, replace
from hashlib import blake2b
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar, cast

import orjson
from pydantic_core import from_json, to_json
from typing_extensions import TypeForm

from journeyman.budget import BudgetLeft
from journeyman.definition.data import lazy_dataclass
from journeyman.definition.json_numbers import read_json, write_json
from journeyman.endings import Place
from journeyman.errors import OutcomeUnknown, StoreError
from journeyman.events import Delivery, SinkEvent, TaskInfo
from journeyman.gate import Approval, Decision
from journeyman.inbox.inbox import Outside
from journeyman.model import Model, Request, Tap
from journeyman.result import ChildRecord
from journeyman.step import STEP_KINDS, RunStep, StepKind
from journeyman.types import NOTHING_USED, Effect, Message, RunPath, ToolUse, Usage, adapter_of

__all__ = [
    "About",
    "InMemoryJournal",
    "Journal",
    "RecordingSink",
    "Records",
    "SentRuns",
    "StoredStep",
    "StoringJournal",
    "TapeEnd",
    "TapeKind",
    "Telemetry",
    "Where",
]

T = TypeVar("T")

_log = logging.getLogger("journeyman")
_AGAIN_S: Final = 1.0
# In tries, one each second: a full disk stands in the log, and does not fill it.
_SAID_EACH: Final = 30
"""After so long, a write that failed is tried again and logged again."""
About: TypeAlias = Callable[[], bytes]
"""Returns a digest of what a step answers: of the request of a model call, of the name and arguments of a call. Digests
only by a journal that compares."""
LIFE: Final = "life"
"""The end of the key under which it is marked that a life begins."""
END: Final = "end"
"""The end of the key of the step that says how a run has ended, in the first life that has ended in good order."""
LIFE_OVER: Final = f"{END}/{LIFE}"
"""The end of the key under which it is marked that another life has ended in good order."""


class Codec(Protocol[T]):
    """A codec that turns a step's value into JSON and back."""

    def encode(self, value: T) -> bytes: ...

    def decode(self, data: bytes) -> T: ...


class TypedCodec(Generic[T]):
    """A codec that stores values of a type which Pydantic can write as JSON."""

    def __init__(self, kind: TypeForm[T]) -> None:
        self._kind: Final = kind

    def encode(self, value: T) -> bytes:
        return as_json(adapter_of(self._kind).dump_python(value, mode="json"))

    def decode(self, data: bytes) -> T:
        return adapter_of(self._kind).validate_json(data)


def as_json(value: object) -> bytes:
    """Return a value that is made of JSON's types as JSON. Half a surrogate pair, which JSON in UTF-8 cannot carry, is
    replaced."""
    try:
        return write_json(value)
    except TypeError:
        text = json.dumps(value, ensure_ascii=False)
        # First the two halves that came in different pieces are joined, then those that are alone replaced.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


@lazy_dataclass(frozen=True, kw_only=True)
class StepFacts:
    """The facts that a step's writer stores beside its value. Who counts reads these, and never the value."""

    kind: StepKind
    counts: int = 0
    """How many tool calls it stands for, in limits."""
    spent: Usage = NOTHING_USED
    """The use by it that no other step of the journal stores."""
    lost: Usage = NOTHING_USED
    """The reservations of requests of which nothing is known: a budget counts them beside that."""
    children: tuple[ChildRecord, ...] = ()
    """The runs that began and ended in it, and will not begin again once it is known."""
    numbers: tuple[int, ...] = ()
    """In which order those began, among all that the run has started."""
    calls_below: int = 0
    """How many calls of all tools have finished in those."""
    background: Usage = NOTHING_USED
    """The use by background runs that those have started."""


def encode_step(value: bytes, facts: StepFacts) -> bytes:
    """Return a step as a journal stores it: a JSON object of its facts and, last, this value, which is JSON."""
    stored: dict[str, Any] = {"kind": facts.kind}
    if facts.counts:
        stored["counts"] = facts.counts
    for name, usage in (("spent", facts.spent), ("lost", facts.lost), ("background", facts.background)):
        if usage is not NOTHING_USED:
            stored[name] = adapter_of(Usage).dump_python(usage, mode="json", exclude_none=True)
    if facts.children:
        stored["children"] = adapter_of(tuple[ChildRecord, ...]).dump_python(facts.children, mode="json")
        stored |= {"numbers": facts.numbers, "calls_below": facts.calls_below}
    # The value is put in as bytes: a long result need not be parsed and written once more.
    return b"".join((orjson.dumps(stored)[:-1], b',"value":', value, b"}"))


def decode_step(data: bytes) -> tuple[StepFacts, bytes]:
    """Return the facts and the value of a step as it was stored.

    Raises:
        ValueError: it is no step, or was stored by a version of this library with another form of steps.
    """
    write: Callable[[object], bytes] = write_json
    try:
        fields: Any = read_json(data)
    except ValueError:  # a user's codec may write NaN, which is no JSON
        fields, write = from_json(data), to_json
    stored = cast("dict[str, Any]", fields if isinstance(fields, dict) else {})
    if "value" not in stored or str(stored.get("kind")) not in STEP_KINDS:
        raise ValueError("it was stored by another version of journeyman, in a form that this one cannot read")
    value = write(stored.pop("value"))
    return adapter_of(StepFacts).validate_python(stored), value


class Reservation(Protocol):
    """The place of one step among the others."""

    @property
    def is_known(self) -> bool:
        """True when `step` does no work: the step was finished, or begun and must not be done twice."""
        return False

    async def step(self, work: Callable[[], Awaitable[T]], *, codec: Codec[T]) -> T:
        """Return the stored value of this step, or do `work` and store what it returns.

        Raises:
            OutcomeUnknown: the step was started before and not finished, and its effect is `once`.
        """
        ...

    async def settle(self, value: T, *, codec: Codec[T]) -> None:
        """Store the value of a step that there was no work to do for, such as a call that was denied."""
        ...


@lazy_dataclass(frozen=True, kw_only=True)
class Above:
    """The origin of a run that another run has sent out to work by itself."""

    run: str = ""
    """The id of the run that is told of its end; empty until it is stored."""
    path: tuple[str, ...]
    """The run that has sent it, from the root down."""
    description: str
    tool_use_id: str
    number: int
    """Tells it from the other runs below the same one."""
    model: str = ""
    """The name of the model that the call asked for; empty for the agent's own."""
    allowance: BudgetLeft = field(default_factory=BudgetLeft)
    """The run spends no more than the runs above had left when it was sent."""
    member: str = ""
    """Its name in the team that the run leads that has sent it; empty for one that is in no team."""
    incarnation: int = 0
    """Which member of that name it is, from 1; 0 until it is stored."""
    team: str = ""
    """The name of that team."""


@lazy_dataclass(frozen=True, kw_only=True)
class SentRun:
    """A run that is to work on by itself, as a run of its own."""

    agents: tuple[str, ...]
    """The names of the sub-agents on the way to it, from the agent of the journal's run down; its own is last."""
    definition: object
    """Its agent."""
    input: str
    """A text as it is; any other input as JSON."""
    exact: str
    """The exact form of an input of which the JSON would be read as another value; else empty."""
    above: Above
    """Its origin."""


class SentRuns(Protocol):
    """The runs that a run has sent out to work on by themselves. They outlive it, and this process.

    Raises, from all but `start` and `all`:
        KeyError: there is none with that id; names those there are.
    """

    n_before_turn: int
    """How many model calls a member of a team has made before the turn that goes on."""

    @property
    def is_resumed(self) -> bool:
        """True when the run that sends them has gone on, perhaps in another process, since it began."""
        ...

    async def start(self, step: RunStep, sent: SentRun) -> str:
        """Start a run in this step, as `Journal.whole` gives it, and return its id as a task. In a later life of the
        run that sends it, it is the same.

        Raises:
            SubagentMisused: another process would not know what to run.
            TeamError: it cannot be a member of that name.
        """
        ...

    async def all(self) -> Sequence[TaskInfo]:
        """Return all of them as they are now, in the order in which they were started."""
        ...

    async def get(self, id: str) -> TaskInfo:
        """Return one as it is now."""
        ...

    async def message(self, id: str, text: str, *, dedup: str) -> Delivery:
        """Say something to one before its next model call; once for each `dedup`."""
        ...

    async def stop(self, id: str, reason: str) -> bool:
        """Stop one. False: it has ended."""
        ...

    async def wait(self, id: str) -> None:
        """Wait until one has ended."""
        ...

    async def mail(self, call: RunStep, to: str, text: str, *, summary: str) -> Sequence[str]:
        """Send mail in steps of this call, once, to a member of the team of this run, its leader or all others;
        return to whom it was sent.

        Raises:
            TeamError: nothing can be sent to that name.
        """
        ...

    async def roster(self) -> str:
        """Return who is in the team of this run, as a model reads it."""
        ...

    async def let_go(self, name: str) -> Sequence[str]:
        """Let a member of the team that this run leads end after its turn, or all; return those that were there.

        Raises:
            TeamError: this run is a member, or there never was one of that name.
        """
        ...


class Journal(Protocol):
    """The memory of the steps of a run, and of the runs below it, by key."""

    @property
    def sent(self) -> SentRuns | None:
        """The runs that the journal's run sends out as runs of their own. None: it sends none."""
        return None

    def whole(self, step: RunStep) -> RunStep:
        """Return a step as the outermost journal has it: under its whole key, and where the outermost run is."""
        return step

    def name(self, step: RunStep) -> str | None:
        """Return a name that only this step has, in all lives of its run; None if there is no such name."""
        return None

    @property
    def waits(self) -> bool:
        """True when somebody may answer a gate's question through this journal, in this life of the run or later."""
        return False

    async def wait(self, step: RunStep, approval: Approval, *, expires_s: float | None) -> Decision | None:
        """Wait for the answer to what a gate asks, or return the one that was stored in this step. None: nobody has
        answered within `expires_s` seconds, downtime included."""
        return None

    def reserve(self, step: RunStep, *, effect: Effect, about: About | None = None) -> Reservation:
        """Return the place of a step. This is called in program order, even for steps that then run at the same time.

        `about` tells what the step answers, so that a stored answer to something else is not taken for this one.
        """
        ...

    def begin_life(self, prefix: str = "") -> float:
        """Note that the run whose keys begin with `prefix` begins, or goes on. Return how many seconds it has worked in
        earlier lives, as far as that is known."""
        return 0.0

    def end_life(self, prefix: str = "") -> None:
        """Note that a life of the run whose keys begin with `prefix` has ended in good order, if no step says so."""

    def stored(self, prefix: str = "") -> Iterable[tuple[str, bytes | None]]:
        """Return the steps of earlier lives whose keys begin with `prefix`: keys, and what was stored of them. None: a
        call was begun, and not finished; no bytes: a step is known, and nothing is stored of it that counts."""
        return ()

    def is_replaying(self, prefix: str = "") -> bool:
        """Tell whether the run whose keys begin with `prefix` has steps of an earlier life, and neither it nor a run
        below it has asked for another one in this life."""
        return False

    def n_cut_calls(self, prefix: str = "") -> int:
        """Return how often the model call that is the next step of a run that replays counts as cut by a death: once
        for each life that has died since the last step of the run, except for the first of all its deaths, as far as
        they are known."""
        return 0


class _NoJournal(Journal, Reservation):
    """The journal of a run that has none, and the place of each of its steps: nothing is kept."""

    def reserve(self, step: RunStep, *, effect: Effect, about: About | None = None) -> Reservation:
        return self

    async def step(self, work: Callable[[], Awaitable[T]], *, codec: Codec[T]) -> T:
        return await work()

    async def settle(self, value: T, *, codec: Codec[T]) -> None:
        return None


NO_JOURNAL: Final = _NoJournal()


# Enough to notice another conversation, at eight bytes a step: it need not withstand anybody, since who may write here
# may do all.
_ABOUT_BYTES: Final = 8


def about_call(use: ToolUse) -> bytes:
    """Return the digest of a call: of its name and its arguments, as the model wrote them."""
    written = f"{use.name}\n{use.malformed or use.input_json}"
    # What a model wrote may hold half a surrogate pair, which still needs a digest.
    return blake2b(written.encode("utf-8", "surrogatepass"), digest_size=_ABOUT_BYTES).digest()


class Digests:
    """Digests of what the model of one run is asked: prefix, settings, and the conversation so far.

    Every message is digested once: the digest of a conversation is that of the one before it and of what follows. It
    is of the whole history, since what is sent of it follows from that.
    """

    __slots__ = ("_chain", "_settings")

    def __init__(self) -> None:
        self._chain: list[tuple[Message, bytes]] = []
        """Each message, and the digest of the conversation up to it."""
        self._settings: tuple[object, bytes] = (None, b"")
        """The settings that were asked with last, and what they are as bytes."""

    def about(self, request: Request, history: Sequence[Message]) -> bytes:
        """Return the digest of a request that is made with this history."""
        chain = self._chain
        # A turn that was undone makes the conversation shorter.
        del chain[len(history) :]
        while chain and chain[-1][0] is not history[len(chain) - 1]:
            chain.pop()  # the last message may have grown since
        for message in history[len(chain) :]:
            before = chain[-1][1] if chain else b""
            chain.append(
                (
                    message,
                    blake2b(before + _stable_bytes([message.role, message.content]), digest_size=_ABOUT_BYTES).digest(),
                )
            )
        conversation = chain[-1][1] if chain else b""
        prefix = request.prefix.wire.get(_ABOUT)
        # Once for each prefix and not for each request: its tools are the longest part.
        if prefix is None:
            tools = [
                [tool.name, tool.description, tool.input_schema, tool.strict, tool.deferred]
                for tool in request.prefix.tools
            ]
            output = request.prefix.output
            form = [] if output is None else [[output.name, output.description, output.schema, output.strict]]
            prefix = _stable_bytes([request.prefix.system, tools, *form])
            prefix = request.prefix.wire[_ABOUT] = blake2b(prefix, digest_size=_ABOUT_BYTES).digest()
        # It is the same object in nearly all requests of a run, so its bytes are made once.
        if self._settings[0] is not request.settings:
            self._settings = (request.settings, _stable_bytes(request.settings))
        return blake2b(prefix + self._settings[1] + conversation, digest_size=_ABOUT_BYTES).digest()


_ABOUT: Final = "about"


def _stable_bytes(value: object) -> bytes:
    """Return the same bytes for equal values."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # bytes of an image, half a surrogate pair
        return repr(value).encode("utf-8", "surrogatepass")


@lazy_dataclass(frozen=True)
class StoredStep:
    """The place of a step in a journal that stores the steps itself.

    That a step was begun is stored only where beginning it twice would matter. What cannot be written because of what
    may pass, such as a full disk, is tried again: it is no reason to end a run that has done what it would forget.
    """

    steps: StoringJournal
    key: str
    effect: Effect

    @property
    def is_known(self) -> bool:
        was_begun, stored = self.steps.found(self.key)
        return stored is not None or (was_begun and self.effect == "once")

    async def step(self, work: Callable[[], Awaitable[T]], *, codec: Codec[T]) -> T:
        was_begun, stored = self.steps.found(self.key)
        if stored is not None:
            return codec.decode(stored)
        # Before the work: whoever listens is told that the run is live before anything new happens.
        self.steps.go_live(self.key)
        if self.effect == "once":
            if was_begun:
                raise OutcomeUnknown(self.key)
            # On the disk before the work begins: without it, a payment that was made in the last moment of a life would
            # be made again.
            await self._put(None)
        value = await work()
        await self._put(codec.encode(value))
        return value

    async def settle(self, value: T, *, codec: Codec[T]) -> None:
        self.steps.go_live(self.key)
        await self._put(codec.encode(value))

    async def _put(self, value: bytes | None) -> None:
        n_tries = 0
        while True:
            try:
                self.steps.put(self.key, value)
            except StoreError as error:
                # What passes ends no run: it would forget what it has just done.
                if not error.may_pass:
                    raise
                if n_tries % _SAID_EACH == 0:
                    _log.warning("The run waits until its step %s can be written: %s", self.key, error)
                n_tries += 1
            else:
                return
            await asyncio.sleep(_AGAIN_S)


class StoringJournal(Journal):
    """A journal that stores the steps itself. A subclass says how one is written, and how all are read."""

    _lives: Lives

    def __init__(self) -> None:
        self._lives = Lives()

    @abstractmethod
    def put(self, key: str, value: bytes | None) -> None:
        """Store the value of a finished step; None: it was begun, which no power cut undoes once this has returned.

        Raises:
            StoreError: it could not be written. One that `may_pass` is no end of the run: it waits, and tries again.
        """
        ...

    @abstractmethod
    def stored(self, prefix: str = "") -> Iterable[tuple[str, bytes | None]]:
        """Return the keys and values of the steps whose keys begin with `prefix`, in the order in which they were first
        put; None for one that was begun and not finished."""
        ...

    def found(self, key: str) -> tuple[bool, bytes | None]:
        """Return whether a step was begun, and its value if it was finished. Override it where reading all is slow."""
        known = dict(self.stored())
        return key in known, known.get(key)

    def reserve(self, step: RunStep, *, effect: Effect, about: About | None = None) -> StoredStep:
        """Return the place of a step."""
        return StoredStep(self, step.key, effect)

    def begin_life(self, prefix: str = "") -> float:
        """Note that a run begins or goes on. The seconds of earlier lives are not known here."""
        self._lives.begin(prefix, [key for key, _ in self.stored(prefix)])
        return 0.0

    def is_replaying(self, prefix: str = "") -> bool:
        """Tell whether a run has only done what it had done in an earlier life."""
        return self._lives.is_replaying(prefix)

    def n_cut_calls(self, prefix: str = "") -> int:
        """Return 0, unless a subclass tells `_lives` when the lives of a run began."""
        return self._lives.n_cut_calls(prefix)

    def go_live(self, key: str) -> None:
        """Note that a step is new."""
        self._lives.go_live(key)


@lazy_dataclass()
class InMemoryJournal(StoringJournal):
    """A journal that lives as long as the process. Give the same one to the next run to go on from this one."""

    finished: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """The values of finished steps, by key."""
    started: set[str] = field(default_factory=set[str])
    """The keys of the steps that were started and must not be started again."""
    _times: list[tuple[str, bool, float]] = field(default_factory=list[tuple[str, bool, float]])
    """The moments when steps were stored, and lives began or ended, for which the second is true; by the clock of the
    event loop, in seconds."""
    _lives: Lives = field(default_factory=lambda: Lives())

    def begin_life(self, prefix: str = "") -> float:
        before = [each for each in self._times if each[0].startswith(prefix)]
        StoringJournal.begin_life(self, prefix)
        self._lives.learn(prefix, [key for key, *_ in before])
        self._note(f"{prefix}{LIFE}", is_life=True)
        return worked_s((is_life, at) for _, is_life, at in before)

    def _note(self, key: str, *, is_life: bool) -> None:
        self._times.append((key, is_life, asyncio.get_running_loop().time()))

    def end_life(self, prefix: str = "") -> None:
        self._note(f"{prefix}{LIFE_OVER}", is_life=True)

    def stored(self, prefix: str = "") -> Iterator[tuple[str, bytes | None]]:
        known = {**dict.fromkeys(self.started), **self.finished}
        return ((key, value) for key, value in known.items() if key.startswith(prefix))

    def found(self, key: str) -> tuple[bool, bytes | None]:
        """Return whether a step was begun, and its value if it was finished."""
        return key in self.started, self.finished.get(key)

    def put(self, key: str, value: bytes | None) -> None:
        """Remember a finished step; None: it was begun."""
        self._note(key, is_life=False)
        if value is None:
            self.started.add(key)
        else:
            self.finished[key] = value


class Lives:
    """The runs of a journal that replay. A run replays from its first known step until a step of its own, or of a run
    below it, is new. It is known by the prefix of its keys."""

    def __init__(self) -> None:
        self._known: list[str] = []
        self._new: list[str] = []
        self._before: dict[str, Sequence[str]] = {}
        """The keys of the steps that earlier lives have stored, and of their beginnings, by the prefix of the run."""

    def begin(self, prefix: str, known: Iterable[str]) -> None:
        """Note that a run begins, or goes on, of which these keys are known."""
        self._known = [*(key for key in self._known if not key.startswith(prefix)), *known]
        self._new = [key for key in self._new if not key.startswith(prefix)]

    def learn(self, prefix: str, before: Sequence[str]) -> None:
        """Learn the keys under which earlier lives have stored steps, and their beginnings, in that order."""
        self._before[prefix] = before

    def n_cut_calls(self, prefix: str) -> int:
        """Return how often the model call that a run is about to make counts as cut: see `Journal.n_cut_calls`."""
        roots = [each for each in self._before if prefix.startswith(each)]
        if not roots:
            return 0
        root = max(roots, key=len)
        return cut_calls(root, self._before[root], prefix)

    def is_replaying(self, prefix: str) -> bool:
        """Tell whether a run replays."""
        return (
            bool(self._known)
            and any(key.startswith(prefix) for key in self._known)
            and not any(key.startswith(prefix) for key in self._new)
        )

    def go_live(self, key: str) -> None:
        """Note that a step is new."""
        # Without steps to replay no run replays, and nothing has to be remembered.
        if self._known:
            self._new.append(key)


def worked_s(times: Iterable[tuple[bool, float]]) -> float:
    """Return how long a run has worked: from the beginning of each life to the last step that was stored in it.

    `times` say of each moment, in seconds, whether a life began or ended then; in their order.
    """
    total_s, began, last = 0.0, None, 0.0
    for is_life, at in times:
        if is_life or began is None:
            # A clock may be set back between two steps: that is no negative work.
            total_s += 0.0 if began is None else max(0.0, last - began)
            began = at
        last = at
    return total_s if began is None else total_s + max(0.0, last - began)


def cut_calls(root: str, keys: Iterable[str], prefix: str) -> int:
    """Return how many lives have died since the last step whose key begins with `prefix`, except for the first death.

    `keys` are those of the run whose keys begin with `root`, in the order in which they were stored. A life that has
    neither noted its end nor stored the step that came next has died.
    """
    n_deaths, n_since, lives = 0, 0, False
    for key in [*keys, f"{root}{LIFE}"]:
        if key == f"{root}{LIFE}":
            n_deaths, n_since, lives = n_deaths + lives, n_since + lives, True
        elif key in (f"{root}{END}", f"{root}{LIFE_OVER}"):
            lives = False
        elif key.startswith(prefix):
            n_since = 0
    # The first is forgiven, since nobody can tell whether the call had been asked: a run that dies once ends as one
    # that nobody killed.
    return max(0, min(n_since, n_deaths - 1))


@lazy_dataclass(frozen=True)
class Section(Journal):
    """A part of a journal, where every key begins with `prefix`: for one of several runs that share it."""

    journal: Journal
    prefix: str
    at: tuple[int, int] = (0, 0)
    """The attempt and the iteration of the run around it."""

    @property
    def sent(self) -> SentRuns | None:
        return self.journal.sent

    def whole(self, step: RunStep) -> RunStep:
        return self.journal.whole(self._inside(step))

    def _inside(self, step: RunStep) -> RunStep:
        return replace(step, key=f"{self.prefix}/{step.key}", within=self.at)

    def name(self, step: RunStep) -> str | None:
        return self.journal.name(self._inside(step))

    @property
    def waits(self) -> bool:
        return self.journal.waits

    async def wait(self, step: RunStep, approval: Approval, *, expires_s: float | None) -> Decision | None:
        return await self.journal.wait(self._inside(step), approval, expires_s=expires_s)

    def reserve(self, step: RunStep, *, effect: Effect, about: About | None = None) -> Reservation:
        return self.journal.reserve(self._inside(step), effect=effect, about=about)

    def begin_life(self, prefix: str = "") -> float:
        return self.journal.begin_life(f"{self.prefix}/{prefix}")

    def end_life(self, prefix: str = "") -> None:
        self.journal.end_life(f"{self.prefix}/{prefix}")

    def stored(self, prefix: str = "") -> Iterator[tuple[str, bytes | None]]:
        start = len(self.prefix) + 1
        return ((key[start:], value) for key, value in self.journal.stored(f"{self.prefix}/{prefix}"))

    def is_replaying(self, prefix: str = "") -> bool:
        return self.journal.is_replaying(f"{self.prefix}/{prefix}")

    def n_cut_calls(self, prefix: str = "") -> int:
        return self.journal.n_cut_calls(f"{self.prefix}/{prefix}")


def new_id(now: float) -> str:
    """Return a UUID of version 7 (RFC 9562, section 5.7): those of one millisecond lie together."""
    number = (int(now * 1000) & (1 << 48) - 1) << 80 | int.from_bytes(os.urandom(10), "big")
    number = number & ~(0xF << 76) | 0x7 << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


Where: TypeAlias = tuple[RunPath, Place]
"""The path of a run, and the place in it."""

TapeKind: TypeAlias = Literal["run", "chat", "team", "durable"]
"""What is recorded: a run with all runs in it, a chat with all its turns, a team, or all lives of a durable run."""

TapeEnd: TypeAlias = Literal["success", "failure", "cancelled", "left"]
"""`left`: a chat or a team was left, or a durable run goes on elsewhere, or later."""


class RecordingSink(Protocol):
    """A tape that records what happens in a run, and in all runs in it. Nothing here raises, and only `room` and `end`
    wait."""

    @property
    def is_behind(self) -> bool:
        """True while so much waits to be written that the run should, too."""
        ...

    @property
    def outside(self) -> Outside | None:
        """The way to those who speak from outside of the process, and are asked there; None: nobody can."""
        ...

    @property
    def wants_words(self) -> bool:
        """True while somebody looks at how an answer is written."""
        ...

    def hear(self, event: SinkEvent) -> None:
        """Record an event."""
        ...

    def tap(self, where: Where, model: Model, request: Request) -> Tap:
        """Return a tap that hears the request which is made here, from now until it has finished or failed."""
        ...

    def active(self, path: RunPath, use: ToolUse | None = None) -> AbstractContextManager[object]:
        """Return a block whose work is that of a run, or of a call of it. Several of them may nest."""
        ...

    def apart(self) -> None:
        """Take note that work begins which nobody waits for. This is called in the context of that work."""
        ...

    async def room(self) -> None:
        """Wait until less waits to be written."""
        ...

    def ended_early(self) -> str | None:
        """Return why nothing is recorded any more, the first time this is asked after that happened; else None."""
        ...

    async def end(self, status: TapeEnd, code: str | None = None) -> None:
        """The run has ended. Wait for what is written, if nobody else does."""
        ...


@lazy_dataclass(frozen=True)
class SharedTape:
    """A recorder that gives the same tape to all who begin to record, none of whom ends it."""

    tape: RecordingSink

    def begin(self, kind: TapeKind, agent: str, *, id: str | None = None) -> RecordingSink:
        return self.tape


class Telemetry(Protocol):
    """A source of tapes that tell others what happens, as it happens: `Runtime(telemetry=…)`."""

    def begin(
        self, kind: TapeKind, agent: str, *, id: str | None = None, traceparent: str = "", conversation: str = ""
    ) -> RecordingSink:
        """Begin to tell of a run, as a part of what the W3C `traceparent` names and of the stored `conversation` of
        this id, if there is one."""
        ...

    def queued(self, agent: str) -> str:
        """Tell that a run is stored, to be done here or elsewhere, and return what it is a part of, as a W3C
        `traceparent`; empty for nothing."""
        ...


class Records(Protocol):
    """A source of tapes: `Runtime(recorder=…)`."""

    def begin(self, kind: TapeKind, agent: str, *, id: str | None = None) -> RecordingSink:
        """Begin a recording, or go on with that of this `id`."""
        ...


class OpenRecords(Records, Protocol):
    """Records that are open, and must be closed when nothing more is to be recorded."""

    def close(self) -> None:
        """Write what waits, and close it."""
        ...
