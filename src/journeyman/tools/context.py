"""The `ToolContext`, by which a tool reaches its run, and the state that it shares with the calls before and after it.

State is passed by value: a tool reads a copy, and what it sets is copied in turn, so that a tool that fails, or keeps a
reference, leaves no trace. Values that cannot change are shared.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field, fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from hashlib import sha256
from pathlib import PurePath
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, Unpack, cast, get_origin
from uuid import UUID

from pydantic import BaseModel
from typing_extensions import TypeVar, is_typeddict

from journeyman.cancellation import Abort
from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import is_list_or_tuple, is_set
from journeyman.definition.problems import explain_arguments
from journeyman.step import RunStep, call_step
from journeyman.tools.background import TaskOptions, Work
from journeyman.types import RefusalCause

T = TypeVar("T")
Given = TypeVar("Given", default=object, covariant=True)
Asked = TypeVar("Asked", default=object, covariant=True)


Which: TypeAlias = Literal["run", "attempt"]
"""Whose state: that of the run, or of the attempt."""


@lazy_dataclass()
class States:
    """The state of a run. It is the loop's: a tool sees it through its `ToolContext` only."""

    run: object = None
    """Lives as long as the run."""
    attempt: object = None
    """Begins again with each attempt."""
    number: int = field(default=0, compare=False)
    """The number of the attempt, from 1."""

    def copied(self) -> States:
        """Return a deep copy of the states, or raise a `TypeError` if they cannot be copied."""
        return States(isolated(self.run, "run"), isolated(self.attempt, "attempt"), self.number)

    def adopt(self, context: ToolContext) -> None:
        """Take over what a call has set. Do it once the call has succeeded, its result included."""
        self.run = context.staged.get("run", self.run)
        self.attempt = context.staged.get("attempt", self.attempt)


class BackgroundTasks(Protocol):
    """A port that starts work for a tool, which goes on after the tool's call has ended."""

    def start(self, work: Work, *, description: str, **options: Unpack[TaskOptions]) -> str:
        """Start `work(task)` and return the id of its task."""
        ...


class RefusedThing(Protocol):
    """A thing that a sandbox has refused, such as a `SandboxRefusal`."""

    @property
    def cause(self) -> RefusalCause:
        """The kind of what was refused."""
        ...

    @property
    def what(self) -> str:
        """The path, the program or the host."""
        ...

    @property
    def need(self) -> str | None:
        """The need with which it may be asked for; None: it cannot be had."""
        ...


class _Named(Protocol):
    """The few properties of a tool that its context reads."""

    @property
    def name(self) -> str: ...
    @property
    def parallel(self) -> bool: ...
    @property
    def cache(self) -> object: ...


@explain_arguments
class ToolContext(Generic[Given, Asked]):
    """A tool's access to its run: facts, state, questions. A parameter of this type is filled in, unseen by the model.

    `ToolContext[Db]` has `deps` of type `Db`, and `ToolContext[Db, Question]` an `input` of type `PendingQuestion`.
    Only an agent with such `deps` and `input` may have the tool. Where it asks for deps, it is the first parameter:
    then type checkers see it, too.
    """

    __slots__ = (
        *("agent", "deps", "path", "attempt", "iteration", "tool_use_id", "step", "abort", "may_keep", "tasks"),
        *("_activate", "_copies", "_given", "_input", "_is_over", "_key", "_name", "_progress", "_refuse"),
        *("_staged", "_states", "_stop", "_tool"),
    )

    def __init__(  # noqa: PLR0913  one for each fact, and made in one place
        self,
        *,
        tool: _Named,
        tool_use_id: str,
        input: object,
        agent: str,
        path: tuple[str, ...],
        attempt: int,
        iteration: int,
        states: States,
        deps: object = None,
        abort: Abort | None = None,
        progress: Callable[[str, float | None], None] | None = None,
        refuse: Callable[[str, RefusedThing], None] | None = None,
        judge: Callable[[Sequence[str]], Awaitable[bool]] | None = None,
        tasks: BackgroundTasks | None = None,
        activate: Callable[[Sequence[str]], None] | None = None,
        name: Callable[[], str | None] | None = None,
        step: RunStep | None = None,
        copied: Iterable[object] = (),
    ) -> None:
        """`name` returns what the call is known by in all lives of the run; None if nothing tells. `step` is what the
        journal has of the call. `copied`: the copy of the input, if there is one already."""
        self.agent: Final = agent
        """The name of the agent."""
        self.deps: Final = cast("Given", deps)
        """What the run was given as `deps`: the object itself, shared by all calls. None: it was given none."""
        self.path: Final = path
        """The run, from the root down."""
        self.attempt: Final = attempt
        """The number of the attempt, from 1."""
        self.iteration: Final = iteration
        """The number of the iteration in its attempt, from 1."""
        self.tool_use_id: Final = tool_use_id
        self.step: Final = step or call_step(attempt, iteration, tool_use_id)
        """The step of the run that the call is."""
        self.abort: Final = abort
        """The signal that may end the run."""
        self.tasks: Final = tasks
        """Where to start work that goes on after this call; None when nobody would await it."""
        self._given = input
        self._input: list[object] = [*copied]
        """The copy of the input, once somebody asked for it."""
        self._tool = tool
        self._states = states
        self._progress = progress
        self._refuse = refuse
        self.may_keep: Final = judge
        """Asks the gates of this call, and so perhaps a person, whether startup files get their names back that its
        command has made, and that were put aside. It returns False, too, if no gate judges them or nobody is there."""
        self._activate = activate
        self._name = name
        self._key = ""
        self._copies: dict[Which, object] | None = None
        self._staged: dict[Which, object] | None = None
        self._stop: str | None = None
        self._is_over = False

    @property
    def input(self) -> Asked:
        """The run's input: a copy for this call, or the value itself where it cannot change or be copied."""
        if not self._input:
            self._input.append(own_copy(self._given))
        return cast("Asked", self._input[0])

    @property
    def depth(self) -> int:
        """The number of runs above this one."""
        return len(self.path) - 1

    @property
    def tool_name(self) -> str:
        return self._tool.name

    @property
    def idempotency_key(self) -> str:
        """A key for a receiver that does nothing twice under the same one, as the `Idempotency-Key` of HTTP: 32
        hexadecimal digits.

        In a durable run it is the same each time that this call is made, in whichever life of the run, and another one
        in a fork. Elsewhere it is one for this call.
        """
        if not self._key:
            name = None if self._name is None else self._name()
            self._key = secrets.token_hex(16) if name is None else sha256(name.encode()).hexdigest()[:32]
        return self._key

    @property
    def staged(self) -> Mapping[Which, object]:
        """The states that this call has set, for `States.adopt`."""
        return self._staged or {}

    def progress(self, message: str, fraction: float | None = None) -> None:
        """Report how far the call is: `fraction` goes from 0 to 1."""
        if self._progress is not None:
            self._progress(message, fraction)

    def report_refusal(self, sandbox: str, refused: RefusedThing) -> None:
        """Report what a sandbox of this name has refused to a command of this call: the event `SandboxRefused`."""
        if self._refuse is not None:
            self._refuse(sandbox, refused)

    def stop(self, reason: str) -> None:
        """End the run once this call has ended: it returns `Failure(EXECUTION_CANCELLED)` with the reason and with all
        that it has done so far, this call's result included.

        Calls that run together with this one end first; calls after it are not made, and the model is not asked again.
        It holds however this call ends. A sub-agent's tool ends the sub-agent's run only. Later calls change nothing.

        Raises:
            RuntimeError: this call has ended.
            TypeError: the reason is no text, or a blank one.
        """
        if not isinstance(reason, str) or not reason.strip():  # pyright: ignore[reportUnnecessaryIsInstance] - users' code may not be typed
            raise TypeError(f"The reason is {reason!r}, which says nothing. Say why: ctx.stop('the page is gone').")
        if self._is_over:
            raise RuntimeError(f"The call of {self._tool.name!r} has ended, so it can no longer stop its run.")
        if self._stop is None:
            self._stop = reason

    def close(self) -> str | None:
        """End the call: it can stop its run no longer. Return why it has; None if it has not."""
        self._is_over = True
        return self._stop

    def activate(self, names: Iterable[str]) -> None:
        """Show the model tools that were hidden so far, from its next turn on.

        Raises:
            RuntimeError: the run hides no tools.
        """
        if self._activate is None:
            raise RuntimeError("This run hides no tools, so there is none to activate.")
        self._activate([names] if isinstance(names, str) else list(names))

    def run_state(self, kind: type[T]) -> T:
        """Return the state of the run: a copy for this call, or the value itself where it cannot change.

        Raises:
            TypeError: it is no `kind`, or it cannot be copied.
        """
        return self._state("run", kind)

    def attempt_state(self, kind: type[T]) -> T:
        """Return the state of the attempt: a copy for this call, or the value itself where it cannot change.

        Raises:
            TypeError: it is no `kind`, or it cannot be copied.
        """
        return self._state("attempt", kind)

    def set_run_state(self, value: object) -> None:
        """Set what later calls read as the state of the run. It counts only if this call succeeds.

        Raises:
            RuntimeError: the tool runs in parallel, or its results are cached.
            TypeError: the value cannot be copied.
        """
        self._set_state("run", value)

    def set_attempt_state(self, value: object) -> None:
        """Set what later calls of this attempt read as its state. It counts only if this call succeeds.

        Raises:
            RuntimeError: the tool runs in parallel, or its results are cached.
            TypeError: the value cannot be copied.
        """
        self._set_state("attempt", value)

    def _state(self, which: Which, kind: type[T]) -> T:
        if self._copies is None:
            self._copies = {}
        if which not in self._copies:
            value = self._states.run if which == "run" else self._states.attempt
            self._copies[which] = isolated(value, which)
        return _of_kind(self._copies[which], kind, which)

    def _set_state(self, which: Which, value: object) -> None:
        if self._tool.parallel or self._tool.cache:
            how = "runs in parallel" if self._tool.parallel else "has its results cached"
            raise RuntimeError(
                f"Tool {self._tool.name!r} {how}, so it may not set state. "
                "Define it without parallel= and cache=, or return the value instead."
            )
        self._staged = {**self.staged, which: isolated(value, which)}
        self._copies = {**(self._copies or {}), which: value}


def _of_kind(value: object, kind: type[T], which: Which) -> T:
    if isinstance(value, dict if is_typeddict(kind) else get_origin(kind) or kind):
        return cast("T", value)
    raise TypeError(
        f"The {which} state is a {type(value).__name__}, not a {kind.__name__}. "
        f"Ask for the type that the agent's {which}_state gives."
    )


# No slots: Python 3.11 cannot make a frozen generic dataclass with slots as `ToolsetContext[Db](…)`.
@lazy_dataclass(frozen=True, kw_only=True, slots=False)
class ToolsetContext(Generic[Given, Asked]):
    """The moment at which a toolset is asked for its tools: whose run it is, and how far that has come."""

    agent: str
    """The name of the agent."""
    path: tuple[str, ...] = ()
    """The run, from the root down."""
    deps: Given = None  # pyright: ignore[reportAssignmentType] - as that of a run without
    """What the run was given as `deps`: the object itself. None: it was given none."""
    input: Asked = None  # pyright: ignore[reportAssignmentType] - the same
    """The run's input: a copy, or the value itself where it cannot change or be copied."""
    attempt: int = 0
    """The number of the attempt, from 1; 0 before the first, where a toolset is asked that is asked once for a run."""
    iteration: int = 0
    """The number of the iteration whose request comes next, from 1; 0 before the first."""
    n_messages: int = 0
    """How many messages the history has."""
    asked: dict[int, tuple[object, Sequence[Any]]] = field(default_factory=lambda: {}, repr=False, compare=False)
    """The toolsets that are asked once for the run, by `id`, and what they gave."""


def isolated(value: T, which: Which) -> T:
    """Return a value that no change of `value` can reach: itself, where it cannot change, or a deep copy.

    Raises:
        TypeError: it cannot be copied.
    """
    if is_frozen(value):
        return value
    try:
        return copy.deepcopy(value)
    except Exception as error:  # whatever a stranger's `__deepcopy__` raises
        raise TypeError(
            f"The {which} state cannot be copied: {type(error).__name__}: {error}. "
            "Keep plain data in it, and connections and locks elsewhere."
        ) from error


def own_copy(value: T) -> T:
    """Return what `isolated` returns, but the value itself where it cannot be copied, as a connection."""
    if is_frozen(value):
        return value
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 - whatever a stranger's `__deepcopy__` raises
        return value


_ATOMS = frozenset(
    {*(str, int, float, complex, bool, type(None), bytes, range), *(date, datetime, time, timedelta, Decimal, UUID)}
)


def is_frozen(value: object) -> bool:
    """Tell whether nothing in `value` can change."""
    kind = type(value)
    if kind in _ATOMS or isinstance(value, Enum | PurePath):
        return True
    if kind in (tuple, frozenset) and (is_list_or_tuple(value) or is_set(value)):
        return all(map(is_frozen, value))
    if isinstance(value, BaseModel):
        return bool(value.model_config.get("frozen")) and all(map(is_frozen, value.__dict__.values()))
    if is_dataclass(value) and not isinstance(value, type):
        is_shut: bool = cast("Any", value).__dataclass_params__.frozen
        return is_shut and all(is_frozen(getattr(value, each.name)) for each in fields(value))
    return False
