"""The stored form of durable runs: a row for each run, a record for each step, a signal for each word from outside.

A record is never changed, and says of its step all that whoever took it knew: what it is, where it stands, which
signals it took.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from hashlib import blake2b, sha256
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypedDict
from weakref import WeakKeyDictionary

import orjson
from pydantic_core import PydanticSerializationError

from journeyman.agent import Agent, Runtime
from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import is_list_or_tuple
from journeyman.errors import RunBlocked, StepTooLarge
from journeyman.events.run_status import RunStatus, StoredStatus, status_of
from journeyman.inbox.signals import PendingQuestion
from journeyman.journal import Above, as_json
from journeyman.result import AskedQuestion, Pending, PendingCall
from journeyman.session import TURN
from journeyman.step import STEP_KINDS, RunStep
from journeyman.store import codec
from journeyman.store.log import NewRecord
from journeyman.store.sessions import SessionHead
from journeyman.types import Message, RunPath, Usage, UserContent, adapter_of, canonical_json

FORMAT: Final = 4
"""The format of what a run begins with. Stores with older ones were never released, and are not opened."""

Status: TypeAlias = Literal["ready", "running", "waiting", "held", "blocked", "done", "failed"]
"""The status of a run. `ready`: the next worker may drive it; `running`: a process drives it; `waiting`: it waits for
an answer or for a moment; `held`: it waits until it is released; `blocked`: it cannot go on by itself, and `why` says
why; `done`, `failed`: it has ended."""
OVER: Final[tuple[Status, ...]] = ("done", "failed")
OPEN: Final[tuple[Status, ...]] = ("ready", "running", "waiting", "held", "blocked")

MOST_BYTES: Final = 16_000_000
"""A step whose value is longer, as JSON, is not stored. All steps of a run are read into memory when it goes on."""

StepState: TypeAlias = Literal["begun", "done"]
"""The state of a step in a record. That a step was begun is stored only where it must not be done twice."""
BEGUN: Final = "begun"
DONE: Final = "done"


class Record(NamedTuple):
    """One step that was begun or done, as it is stored: all that whoever took it knows of it, beside its value."""

    run: str
    key: str
    state: StepState
    """`begun`: nothing more is known; `done`: it holds the value of the step."""
    kind: str
    """A `StepKind`, as far as this version knows it."""
    attempt: int
    """With the next one: where the outermost run was; 0 for no attempt, and for no iteration."""
    iteration: int
    call: str | None
    """The id of the call that the step belongs to."""
    taken: str | None
    """The numbers of the signals that it took, as JSON."""
    deaths: int
    """The number of lives in a row that had died when the one began that wrote it."""
    about: bytes | None
    """The digest of what the step answers; None where that was not noted."""
    effect: str
    epoch: int
    """The life in which it was written."""
    at: float
    """Seconds since 1970."""
    used_s: float
    """How long the run had worked, in seconds."""
    f: int
    """The format of the record."""
    body: bytes | None
    """The facts and the value of the step, packed. None: it was begun."""
    crc: int


def record_of_step(  # noqa: PLR0913 - its fields
    claim: Claim,
    step: RunStep,
    state: StepState,
    *,
    taken: Sequence[int] = (),
    about: bytes | None = None,
    effect: str,
    at: float,
    used_s: float,
    body: bytes | None,
) -> Record:
    """Return the record of a step under a claim, with its checksum."""
    row, signals = claim.row, orjson.dumps(list(taken)).decode() if taken else None
    facts = [row.id, step.key, state, step.kind, *step.at, step.call, signals, row.deaths, about, effect]
    facts += [claim.epoch, at, used_s, codec.FORMAT]
    # Made at once with its checksum: each iteration has two, and a copy costs as much as the checksum.
    return Record._make((*facts, body, codec.checksum(facts, body)))


def seal_record(record: Record) -> Record:
    """Return a record with the checksum of what it says."""
    return record._replace(crc=_checksum_of(record))


def _checksum_of(record: Record) -> int:
    # Of all that it says: one that damage has put under another key, or in another run, is not taken for that step.
    *facts, body, _ = record
    return codec.checksum(facts, body)


def pack_step(value: bytes, *, key: str) -> bytes:
    """Return the body of a step whose facts and value are this JSON.

    Raises:
        StepTooLarge: it has more than `MOST_BYTES`.
    """
    if len(value) > MOST_BYTES:
        raise StepTooLarge(key, n_bytes=len(value), most_bytes=MOST_BYTES)
    return codec.pack(value)


def taken_by(record: Record) -> Sequence[int]:
    """Return the numbers of the signals that a step took."""
    return () if record.taken is None else orjson.loads(record.taken)


def check_record(stored: Record) -> None:
    """Raise a `RunBlocked` if a record is damaged, or of a format or a kind that this version does not know."""
    if stored.crc != _checksum_of(stored):
        raise RunBlocked(stored.run, f"its step {stored.key} is damaged: its checksum is wrong")
    if stored.f != codec.FORMAT or stored.kind not in STEP_KINDS:
        what = f"format {stored.f}" if stored.f != codec.FORMAT else f"the kind {stored.kind!r:.40}"
        why = f"its step {stored.key} is of {what}, which this version does not know: update journeyman"
        raise RunBlocked(stored.run, why)


def unpack_step(stored: Record) -> bytes:
    """Return the facts and the value of a step that is done, as JSON.

    Raises:
        RunBlocked: the record is damaged, or of a format or a kind that this version does not know.
    """
    check_record(stored)
    try:
        return codec.unpack(stored.body or b"")
    except codec.DamagedValue as error:
        raise RunBlocked(stored.run, f"its step {stored.key} is damaged: {error}") from error


@lazy_dataclass(frozen=True, kw_only=True)
class Head:
    """The beginning of a run, as far as it can be stored. The rest comes from the program, in each life."""

    agent: str
    input: str
    """A text as it is; content as its words with a note for each file; any other input as JSON."""
    prints: Mapping[str, str]
    """Digests of the parts of the agent's definition."""
    gates: tuple[str, ...]
    """The gates that its calls pass, by their classes: it never goes on with fewer."""
    max_attempts: int | None = None
    history: tuple[Message, ...] = ()
    """The conversation that it goes on from."""
    target: str = ""
    """Where a command finds the agent: `agents.py:analyst`."""
    model: str = ""
    """The model that a command was told to use instead of the agent's."""
    mode: str = ""
    """What a command was told to let the agent do unasked."""
    accepts: bool = False
    """True when somebody has accepted that stored answers are to other questions than are asked now."""
    session: str | None = None
    """The session that it is a turn of: its conversation is the one that the run goes on from, and adds to."""
    number: int = 0
    """Which of the runs of that session it is, from 1."""
    goes_on: bool = False
    """True for a turn without a prompt: it says what waits, or goes on where the one before was interrupted."""
    version: str = ""
    """The version of this library."""
    content: tuple[UserContent, ...] = ()
    """The blocks of an input that is content."""
    exact: str = ""
    """The exact form of an input of which the JSON would be read as another value."""
    above: Above | None = None
    """The origin of the run, if another run has sent it out."""
    traceparent: str | None = None
    """What all its lives are a part of for who follows them from outside: as W3C Trace Context has it."""


def dump_head(head: Head) -> bytes:
    """Return what a run begins with as it is stored: half a surrogate pair is replaced."""
    # The quick way first: half a surrogate pair is rare, and only it raises.
    try:
        return codec.pack(adapter_of(Head).dump_json(head, exclude_none=True))
    except PydanticSerializationError:
        return codec.pack(as_json(adapter_of(Head).dump_python(head, mode="json", exclude_none=True)))


def load_head(row: Row) -> Head:
    """Return the head of a run.

    Raises:
        RunBlocked: it cannot be read.
    """
    if isinstance(row.head, Head):
        return row.head
    if row.f > FORMAT:
        why = f"it has format {row.f}, and this version reads formats up to {FORMAT}: update journeyman"
        raise RunBlocked(row.id, why)
    try:
        return adapter_of(Head).validate_json(codec.unpack(row.head))
    except ValueError as error:
        raise RunBlocked(row.id, f"what it was begun with cannot be read: {str(error).splitlines()[0]}") from error


def gates_of(agent: Agent[Any, Any, Any], runtime: Runtime) -> tuple[str, ...]:
    """Return the names of the gates that the calls of a run would pass."""
    given: list[object] = [gate for tool in agent.plan.tools.values() for gate in tool.call_path.gates]
    for gate in (agent.gate, runtime.gate):
        if gate is not None:
            given += gate if isinstance(gate, Sequence) else [gate]
    # Sorted: the order of gates in a program is not compared.
    return tuple(sorted(type(each).__qualname__ for each in given))


def prints_of(agent: Agent[Any, Any, Any]) -> Mapping[str, str]:
    """Return digests of the parts of a definition that decide what a model is asked and how far a run goes."""
    known = _prints.get(agent)
    if known is None:
        known = _prints[agent] = _made_prints(agent)
    return known


# By the agent itself, and gone with it: a program may make agents all the time.
_prints: Final[WeakKeyDictionary[Agent[Any, Any, Any], Mapping[str, str]]] = WeakKeyDictionary()
"""The digests of agents, which do not change: each run needs them twice."""


def _made_prints(agent: Agent[Any, Any, Any]) -> dict[str, str]:
    given: Any = agent.compaction
    strategies: Any = getattr(given, "strategies", given)
    are_listed = is_list_or_tuple(strategies)
    names = [getattr(each, "name", "") for each in strategies] if are_listed else "made anew"
    tools = [[spec.name, spec.description, spec.input_schema, spec.strict] for spec in agent.plan.specs]
    effects = {tool.name: tool.effect for tool in (*agent.plan.tools.values(), *agent.plan.outputs.functions)}
    system = agent.plan.system
    parts: dict[str, Any] = {
        "system prompt": system if isinstance(system, str) else "" if callable(system) else "texts",
        "tools": [tools, effects],
        "output": None if agent.plan.output is None else agent.plan.output.input_schema,
        "limits": repr(replace(agent.limits, budget_policies=())),  # another process shows a policy in another way
        "compaction": names,
    }
    return {name: blake2b(canonical_json(part), digest_size=8).hexdigest() for name, part in parts.items()}


@lazy_dataclass(kw_only=True)
class ListedRun:
    """A run as lists show it. Nothing here may be long."""

    id: str
    """A UUID that sorts by time."""
    name: str | None
    """The id that its user gave it."""
    parent: str | None = None
    """The run that it was forked from, or that sent it out."""
    agent: str
    target: str = ""
    """That of its head."""
    queue: str = "default"
    created: float
    """Seconds since 1970."""
    status: Status
    wake: float | None = None
    """When it goes on by itself, in seconds since 1970."""
    asked: bytes | None = None
    """The questions that it waits for."""
    tokens: int = 0
    cost: float = 0.0
    attempt: int = 0
    iteration: int = 0
    lives: int = 0
    owner: str | None = None
    """The process that drives it. Told, not trusted: the lock of that process tells whether it lives."""
    why: str | None = None
    """Why it is blocked; of one that is over and failed, the error code."""
    ended: float | None = None
    """Seconds since 1970."""


class RunGlance(NamedTuple):
    """The columns of a run that are looked at again and again while it goes on: its row may be long."""

    status: Status
    """How the run is."""
    epoch: int
    n_signals: int
    """The number of signals that it has got."""
    parent: str | None
    """The run that it was forked from, or that sent it out."""


@lazy_dataclass(kw_only=True)
class Row(ListedRun):
    """A run as it is stored: what is known of it without reading its steps."""

    app: str = ""
    f: int = FORMAT
    head: bytes | Head
    """The head names the agent, the input and the options with which the run began; as JSON, unless no other process
    can read it."""
    priority: int = 0
    dedup: str | None = None
    gen: int = 0
    """Grows with every wake-up."""
    epoch: int = 0
    """Grows with every claim: only who claimed it last may write."""
    parked: bool = False
    """A ticket brought it when its queue was full: it gets another one when a run leaves that queue."""
    n_signals: int = 0
    used_s: float = 0.0
    deaths: int = 0
    """How often in a row it took its process down before a new step."""
    n_steps: int = 0
    """Its records when it was last claimed."""


def make_row(head: Head, *, is_packed: bool = True, **fields: Any) -> Row:
    """Return a run that begins with a head, and has these fields."""
    return Row(agent=head.agent, target=head.target, head=dump_head(head) if is_packed else head, **fields)


@lazy_dataclass(frozen=True, kw_only=True)
class QueueState:
    """The number of a queue's runs in each status. Runs that have ended are not counted."""

    queue: str
    ready: int
    """How many could go on now if a worker had room."""
    oldest_s: float
    """How many seconds ago the oldest of these was started or was due; 0 when none is ready."""
    delayed: int
    """How many are ready but are to begin later."""
    running: int
    waiting: int
    held: int
    blocked: int


_IS_DUE: Final = "status = 'ready' AND (wake IS NULL OR wake <= {now})"
_PLACES: Final[Mapping[str, str]] = {
    "ready": _IS_DUE,
    "delayed": "status = 'ready' AND wake > {now}",
    **{status: f"status = '{status}'" for status in OPEN if status != "ready"},
}
QUEUES: Final = (
    f"SELECT queue, min(coalesce(wake, created)) FILTER (WHERE {_IS_DUE}),"
    f" {', '.join(f'count(*) FILTER (WHERE {each})' for each in _PLACES.values())}"
    " FROM jm_runs WHERE status NOT IN ('done', 'failed') GROUP BY queue ORDER BY queue"
)
"""What `queue_state` is made from; `{now}` is the place of the moment."""


def queue_state(found: Sequence[Any], *, now: float) -> QueueState:
    """Return what one row of what `QUEUES` finds says."""
    queue, oldest, *counts = found
    oldest_s = 0.0 if oldest is None else max(0.0, now - oldest)
    return QueueState(queue=queue, oldest_s=oldest_s, **dict(zip(_PLACES, counts, strict=True)))


LAST: Final = "\U0010ffff"
"""Behind every other character: what begins with a text comes before the text with this. It ends a range, which an
index finds."""


class ListPlace(NamedTuple):
    """The place of a run, or a session, in a list: where the next page begins."""

    created: float
    """Seconds since 1970."""
    id: str
    """The id of the run, or the session."""

    def is_before(self, other: Row | SessionHead) -> bool:
        """Tell whether another one comes behind it, where the newest comes first."""
        return (other.created, other.id) < self


class RunFilter(TypedDict, total=False):
    """The runs that a list shows: those that fit all that is given."""

    statuses: Collection[Status]
    agent: str | None
    prefix: str
    """The beginning of their id or name."""
    ended_before: float
    """Seconds since 1970."""
    older_than: ListPlace | None
    """Only those behind the run of this place in the list."""
    limit: int
    """The most runs to return: 100, if that is left out."""


class Claim(NamedTuple):
    """The right to drive a run: it lasts until somebody else claims it."""

    row: Row
    """The row of the run as it was claimed."""
    epoch: int
    head: Head | None = None
    """The beginning of the run, where it is known without reading the row."""

    def drives(self, row: Row) -> bool:
        """Tell whether it still holds for the run as it is now, which was not given back either."""
        return row.epoch == self.epoch and row.status == "running"


def digest_question(path: RunPath, question: str) -> str:
    """Return the id of a question that a model asks in a run."""
    return sha256("\n".join((*path, question)).encode("utf-8", "surrogatepass")).hexdigest()


@lazy_dataclass(frozen=True, kw_only=True)
class RunInfo:
    """The facts that the store has of a run."""

    id: str
    name: str | None
    agent: str
    status: RunStatus
    queue: str
    created: float
    """Seconds since 1970."""
    ended: float | None
    attempt: int
    iteration: int
    tokens: int
    cost: float
    leases: int
    reason: str | None
    parent: str | None
    target: str
    pending: tuple[PendingQuestion, ...] = ()
    wake_at: float | None = None

    @property
    def is_over(self) -> bool:
        return self.status in ("done", "failed", "cancelled")


def info_of(row: ListedRun, is_held: Callable[[str], bool]) -> RunInfo:
    """Return what a row tells. `is_held` tells whether a process lives."""
    return RunInfo(
        **{name: getattr(row, name) for name in _AS_STORED},
        status=status_of(StoredStatus(row.status, row.why, row.owner, row.ended), None, is_held),
        leases=row.lives,
        reason=row.why,
        pending=questions_of(row),
        wake_at=row.wake,
    )


_AS_STORED: Final = (
    *("id", "name", "agent", "queue", "created", "ended", "attempt", "iteration", "tokens", "cost", "parent", "target"),
)


def questions_of(row: ListedRun) -> tuple[PendingQuestion, ...]:
    """Return the questions that a run waits for; none if they cannot be read."""
    try:
        return () if row.asked is None else adapter_of(tuple[PendingQuestion, ...]).validate_json(row.asked)
    except ValueError:
        return ()


def pending_of(row: Row, history: tuple[Message, ...]) -> Pending:
    """Return what a run waits for, as its caller is told."""
    calls: list[PendingCall] = []
    questions: list[AskedQuestion] = []
    for each in questions_of(row):
        # The result of an external tool is the answer to its call.
        if each.kind == "answer" and (given := each.arguments) is not None:
            calls.append(PendingCall(id=each.question_id, tool_name=each.tool, arguments=given, path=each.path))
        else:
            named = each.tool if each.kind == "approve" else ""
            questions.append(
                AskedQuestion(
                    id=each.question_id,
                    kind=each.kind,
                    question=each.question,
                    options=each.options,
                    tool_name=named,
                    arguments=each.arguments,
                )
            )
    return Pending(calls=tuple(calls), questions=tuple(questions), history=history)


def dump_questions(questions: Sequence[PendingQuestion]) -> bytes | None:
    """Return questions as a row keeps them."""
    return adapter_of(tuple[PendingQuestion, ...]).dump_json(tuple(questions)) if questions else None


@lazy_dataclass(frozen=True, kw_only=True)
class Change:
    """The change that a run's row gets when the run is no longer driven here."""

    status: Status
    why: str | None = None
    wake: float | None = None
    asked: bytes | None = None
    used_s: float = 0.0
    usage: Usage = field(default_factory=Usage)
    attempt: int = 0
    iteration: int = 0
    end: Record | None = None
    """The last step of a run that is over: what its conversation does not say of its result."""
    conversation: str = ""
    """The session, or the run by itself, to whose conversation `lines` are added in the same transaction."""
    lines: Sequence[NewRecord] = ()


# Names stand in indexes, in addresses and on pages.
_MOST_CHARACTERS: Final = 200


def name_fault(name: str) -> str | None:
    """Say why a text cannot be the id of a run; None if it can."""
    if not name.strip():
        return "it is empty"
    if len(name) > _MOST_CHARACTERS:
        return f"it has {len(name):,} characters; at most {_MOST_CHARACTERS} are allowed"
    if not name.isprintable():
        return "it has characters that cannot be shown"
    if name.startswith(TURN):
        return f"turns of chats are called {TURN}…"
    return None


def wall_clock() -> float:
    """Return the seconds since 1970, by the clock of this machine."""
    return time.time()
