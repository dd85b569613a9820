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
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import field
from hashlib import blake2b
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import orjson

from journeyman.errors import OutcomeUnknown, StoreError
from journeyman.gate import Approval, Decision
from journeyman.model import Request
from journeyman.types import Effect, Message, ToolUse, adapter_of, record_class, value_class

T = TypeVar("T")

_log = logging.getLogger("journeyman")
_AGAIN_S: Final = 1.0
_SAID_EACH: Final = 30
"""What cannot be written is tried again after so long, and said as often as that."""
About: TypeAlias = Callable[[], bytes]
"""Returns a digest of what a step answers: of the request of a model call, of the name and arguments of a call. Digests
only by a journal that compares."""
LIFE: Final = "life"
"""The end of the key under which it is marked that a life begins."""


class Codec(Protocol[T]):
    """Turns a step's value into JSON and back."""

    def encode(self, value: T) -> bytes: ...

    def decode(self, data: bytes) -> T: ...


class TypedCodec(Generic[T]):
    """Stores values of a type that Pydantic can write as JSON."""

    def __init__(self, kind: Any) -> None:  # noqa: ANN401 - whatever Pydantic takes for a type
        self._kind: Final = kind

    def encode(self, value: T) -> bytes:
        return as_json(adapter_of(self._kind).dump_python(value, mode="json"))

    def decode(self, data: bytes) -> T:
        return adapter_of(self._kind).validate_json(data)


def as_json(value: object) -> bytes:
    """Return what is made of JSON's types as JSON. Half a surrogate pair, which it cannot carry, is replaced."""
    try:
        return orjson.dumps(value)
    except TypeError:
        text = json.dumps(value, ensure_ascii=False)
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


class Reservation(Protocol):
    """The place of one step among the others."""

    @property
    def is_known(self) -> bool:
        """True when `step` does no work: the step was finished, or begun and must not be done twice."""
        ...

    async def step(self, work: Callable[[], Awaitable[T]], *, codec: Codec[T]) -> T:
        """Return the stored value of this step, or do `work` and store what it returns.

        Raises:
            OutcomeUnknown: the step was started before and not finished, and its effect is `once`.
        """
        ...

    async def settle(self, value: T, *, codec: Codec[T]) -> None:
        """Store the value of a step that there was no work to do for, such as a call that was denied."""
        ...


class Journal(Protocol):
    """Remembers the steps of a run, and of the runs below it, by key."""

    def name(self, key: str) -> str | None:
        """Return what a step is known by in all lives of its run, and nothing else is; None if nothing tells."""
        return None

    @property
    def waits(self) -> bool:
        """True when somebody may answer through it what a gate asks, in this life of the run or a later one."""
        return False

    async def wait(self, key: str, approval: Approval, *, expires_s: float | None) -> Decision | None:
        """Wait for the answer to what a gate asks, or return the one that was stored under `key`. None: nobody has
        answered within `expires_s` seconds, downtime included."""
        return None

    def reserve(self, key: str, *, effect: Effect, about: About | None = None) -> Reservation:
        """Take the place of a step. Called in program order, also for steps that then run at the same time.

        `about` tells what the step answers, so that a stored answer to something else can be told from it.
        """
        ...

    def begin_life(self, prefix: str = "") -> float:
        """Note that the run whose keys begin with `prefix` begins, or goes on. Return how many seconds it has worked in
        earlier lives, as far as that is known."""
        return 0.0

    def stored(self, prefix: str = "") -> Iterable[tuple[str, bytes | None]]:
        """Return the steps of earlier lives whose keys begin with `prefix`: keys and values. None: it was begun."""
        return ()

    def is_replaying(self, prefix: str = "") -> bool:
        """Tell whether the run whose keys begin with `prefix` has steps of an earlier life, and neither it nor a run
        below it has asked for another one in this life."""
        return False


# -- what a step answers ----------------------------------------------------------------------------------------------

_ABOUT_BYTES: Final = 8


def about_call(use: ToolUse) -> bytes:
    """Return the digest of a call: of its name and its arguments, as the model wrote them."""
    written = f"{use.name}\n{use.malformed or use.input_json}"
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
        del chain[len(history) :]
        while chain and chain[-1][0] is not history[len(chain) - 1]:
            chain.pop()  # the last message may have grown since
        for message in history[len(chain) :]:
            before = chain[-1][1] if chain else b""
            chain.append(
                (message, blake2b(before + _plain([message.role, message.content]), digest_size=_ABOUT_BYTES).digest())
            )
        conversation = chain[-1][1] if chain else b""
        prefix = request.prefix.wire.get(_ABOUT)
        if prefix is None:
            tools = [
                [tool.name, tool.description, tool.input_schema, tool.strict, tool.deferred]
                for tool in request.prefix.tools
            ]
            prefix = _plain([request.prefix.system, tools])
            prefix = request.prefix.wire[_ABOUT] = blake2b(prefix, digest_size=_ABOUT_BYTES).digest()
        if self._settings[0] is not request.settings:
            self._settings = (request.settings, _plain(request.settings))
        return blake2b(prefix + self._settings[1] + conversation, digest_size=_ABOUT_BYTES).digest()


_ABOUT: Final = "about"


def _plain(value: object) -> bytes:
    """Return the same bytes for equal values."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # bytes of an image, half a surrogate pair
        return repr(value).encode("utf-8", "surrogatepass")


# -- steps that a journal stores itself --------------------------------------------------------------------------------


class Steps(Protocol):
    """The steps that a journal stores."""

    def found(self, key: str) -> tuple[bool, bytes | None]:
        """Return whether a step was begun, and its value if it was finished."""
        ...

    def put(self, key: str, value: bytes | None) -> None:
        """Store the value of a finished step; None: it was begun, which no power cut undoes once this has returned.

        Raises:
            StoreError: it could not be written.
        """
        ...

    def go_live(self, key: str) -> None:
        """Be told that this step is not known."""
        ...


@value_class()
class StoredStep:
    """The place of a step in a journal that stores the steps itself.

    That a step was begun is stored only where beginning it twice would matter. What cannot be written because of what
    may pass, such as a full disk, is tried again: it is no reason to end a run that has done what it would forget.
    """

    steps: Steps
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
        self.steps.go_live(self.key)
        if self.effect == "once":
            if was_begun:
                raise OutcomeUnknown(self.key)
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
                if not error.may_pass:
                    raise
                if n_tries % _SAID_EACH == 0:
                    _log.warning("The run waits until its step %s can be written: %s", self.key, error)
                n_tries += 1
            else:
                return
            await asyncio.sleep(_AGAIN_S)


@record_class()
class InMemoryJournal(Journal):
    """A journal that lives as long as the process. Give the same one to the next run to go on from this one."""

    finished: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """The values of finished steps, by key."""
    started: set[str] = field(default_factory=set[str])
    """The keys of the steps that were started and must not be started again."""
    _times: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    """When each step was stored, and each life began, by the clock of the event loop, in seconds."""
    _lives: Lives = field(default_factory=lambda: Lives())

    def reserve(self, key: str, *, effect: Effect, about: About | None = None) -> StoredStep:
        return StoredStep(self, key, effect)

    def begin_life(self, prefix: str = "") -> float:
        used_s = worked_s((key, at) for key, at in self._times if key.startswith(prefix))
        self._lives.begin(prefix, [key for key, _ in self.stored(prefix)])
        self._times.append((f"{prefix}{LIFE}", asyncio.get_running_loop().time()))
        return used_s

    def stored(self, prefix: str = "") -> Iterator[tuple[str, bytes | None]]:
        known = {**dict.fromkeys(self.started), **self.finished}
        return ((key, value) for key, value in known.items() if key.startswith(prefix))

    def is_replaying(self, prefix: str = "") -> bool:
        return self._lives.is_replaying(prefix)

    def found(self, key: str) -> tuple[bool, bytes | None]:
        return key in self.started, self.finished.get(key)

    def put(self, key: str, value: bytes | None) -> None:
        self._times.append((key, asyncio.get_running_loop().time()))
        if value is None:
            self.started.add(key)
        else:
            self.finished[key] = value

    def go_live(self, key: str) -> None:
        self._lives.go_live(key)


class Lives:
    """Which of the runs in a journal replay: those with steps of an earlier life, until a step of theirs, or of a run
    below them, is new. A run is known by the prefix of its keys."""

    def __init__(self) -> None:
        self._known: list[str] = []
        self._new: list[str] = []

    def begin(self, prefix: str, known: Iterable[str]) -> None:
        """Note that a run begins, or goes on, of which these keys are known."""
        self._known = [*(key for key in self._known if not key.startswith(prefix)), *known]
        self._new = [key for key in self._new if not key.startswith(prefix)]

    def is_replaying(self, prefix: str) -> bool:
        """Tell whether a run replays."""
        return any(key.startswith(prefix) for key in self._known) and not any(
            key.startswith(prefix) for key in self._new
        )

    def go_live(self, key: str) -> None:
        """Note that a step is new."""
        if self._known:
            self._new.append(key)


def worked_s(times: Iterable[tuple[str, float]]) -> float:
    """Return how long a run has worked: from the beginning of each life to the last step that was stored in it.

    `times` are keys and moments in seconds, in the order in which they were stored.
    """
    total_s, began, last = 0.0, None, 0.0
    for key, at in times:
        if key.rpartition("/")[2] == LIFE or began is None:
            total_s += 0.0 if began is None else max(0.0, last - began)
            began = at
        last = at
    return total_s if began is None else total_s + max(0.0, last - began)


@value_class()
class Section(Journal):
    """A part of a journal, where every key begins with `prefix`: for one of several runs that share it."""

    journal: Journal
    prefix: str

    def name(self, key: str) -> str | None:
        return self.journal.name(f"{self.prefix}/{key}")

    @property
    def waits(self) -> bool:
        return self.journal.waits

    async def wait(self, key: str, approval: Approval, *, expires_s: float | None) -> Decision | None:
        return await self.journal.wait(f"{self.prefix}/{key}", approval, expires_s=expires_s)

    def reserve(self, key: str, *, effect: Effect, about: About | None = None) -> Reservation:
        return self.journal.reserve(f"{self.prefix}/{key}", effect=effect, about=about)

    def begin_life(self, prefix: str = "") -> float:
        return self.journal.begin_life(f"{self.prefix}/{prefix}")

    def stored(self, prefix: str = "") -> Iterator[tuple[str, bytes | None]]:
        start = len(self.prefix) + 1
        return ((key[start:], value) for key, value in self.journal.stored(f"{self.prefix}/{prefix}"))

    def is_replaying(self, prefix: str = "") -> bool:
        return self.journal.is_replaying(f"{self.prefix}/{prefix}")
