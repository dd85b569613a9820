"""The port that decides whether a call may happen, asked once for each call, before any effect.

A gate allows, denies, asks a person or program, or rewrites the arguments. Where several gates apply, each can only
narrow what the others let through: after a rewrite, all others are asked again. A gate may also keep a memory of each
run: see `RunGate`.

`Guard` is what guards the calls of one run: its own gates, and then those of every run above. The outermost approver
answers, and an approver that says stop ends the outermost run. Where there is neither a gate nor an approver there is
no `Guard` at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import field, fields, replace
from typing import Any, Final, Literal, Protocol, TypeAlias, cast, get_args, runtime_checkable

from pydantic import ValidationError
from typing_extensions import TypeVar

from journeyman.cancellation import is_awaited, is_failure, log_caught
from journeyman.definition.data import copy_with, lazy_dataclass
from journeyman.definition.json_numbers import holds_written_numbers, read_json, read_object, write_json
from journeyman.definition.narrowing import is_json_object
from journeyman.errors import Problem, name_and_words
from journeyman.events.chat import DecisionWord
from journeyman.hosted.calls import HostedCall, hosted_calls
from journeyman.types import (
    Block,
    Effect,
    JsonObject,
    Message,
    Text,
    TextOrigin,
    ToolResult,
    ToolUse,
    UserContent,
    adapter_of,
    canonical_json,
)

__all__ = [
    "Allow",
    "Approval",
    "Approver",
    "Ask",
    "CommandBox",
    "Decision",
    "Deny",
    "Extent",
    "Gate",
    "GateRequest",
    "GateWithDeps",
    "ReadyTool",
    "Rewrite",
    "RunGate",
    "Seen",
    "Stop",
    "Use",
    "Verdict",
]

ReadyTool: TypeAlias = Literal[
    "read",
    "ls",
    "grep",
    "glob",
    "write",
    "edit",
    "bash",
    "fetch",
    "tool_search",
    "call_tool",
    "ask_user",
    "subagent",
    "skill",
]
"""A tool that comes with this library, and that permissions know."""

READY_TOOLS: Final[tuple[ReadyTool, ...]] = get_args(ReadyTool)


Needs = TypeVar("Needs", default=object, contravariant=True)

Extent: TypeAlias = Literal["once", "session", "always"]
"""How far an approval reaches: this call; this session; every session."""

ONCE: Final[tuple[Extent, ...]] = ("once",)


@lazy_dataclass(frozen=True)
class Allow:
    """The call may happen."""

    extent: Extent = "once"
    """How far an approval reaches, when this answers an `Ask`. More than `once` only has a meaning for a gate that
    offers it."""


@lazy_dataclass(frozen=True)
class Deny:
    """The call must not happen; the model reads why."""

    reason: str
    """Why, for the model to read."""


@lazy_dataclass(frozen=True)
class Ask:
    """Somebody must decide. If there is no approver, the call is denied, with the question as the reason."""

    question: str
    """What a person is asked, in words."""
    offers: tuple[Extent, ...] = ONCE
    """How far an approval may reach."""
    rule: str = ""
    """What an approval for more than one call would allow, in words. Empty: the gate offers none, or does not say."""


@lazy_dataclass(frozen=True)
class Rewrite:
    """The call may happen with other arguments. They are validated again, and the model is told."""

    arguments: JsonObject
    """The arguments with which the call is made."""
    reason: str = ""
    """Why, for events and the log."""


@lazy_dataclass(frozen=True)
class Stop:
    """The call must not happen. The run ends, and so do the runs that it is part of."""

    reason: str = "stopped by the approver"
    """Why, for the failure of the run."""


class CommandBox(Protocol):
    """The borders that the kernel holds around a command, as a gate may read them: a `Box` of `journeyman.sandbox`."""

    @property
    def work(self) -> str:
        """The folder that the command works in."""
        ...

    @property
    def changes(self) -> bool:
        """Whether that folder may be changed."""
        ...

    @property
    def writes(self) -> tuple[str, ...]:
        """Further files and folders that may be changed."""
        ...

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that may be reached."""
        ...

    @property
    def sandbox(self) -> str:
        """The name of the sandbox that holds it, such as `bubblewrap`."""
        ...


@lazy_dataclass(frozen=True, kw_only=True)
class GateRequest:
    """One call, after its arguments were validated."""

    path: tuple[str, ...]
    """The path of the run that wants the call, from the root down."""
    tool_use_id: str
    tool_name: str
    arguments: JsonObject
    """The arguments that the tool will get, including rewrites of earlier gates. Each gate reads a copy of its own."""
    effect: Effect
    """What the tool says of its effects."""
    untrusted: bool = False
    """True when the tool's results come from outside."""
    n_model_calls: int = 0
    """How many model calls the run had made when the model wrote this call; 0: not known."""
    permission_kind: ReadyTool | None = None
    """Which ready tool of this library is called, as the tool itself declares; its name does not count. None: no ready
    tool."""
    proxied: Mapping[str, ReadyTool] = field(default_factory=dict[str, ReadyTool])
    """For a tool that passes calls on: which ready tool each tool behind it is, by its name."""
    external: bool = False
    """True when another program describes the tool and does its work, as with one of an MCP server."""
    server_names: tuple[str, ...] = ()
    """What rules call a tool of an MCP server: `mcp__SERVER__TOOL`, and `mcp__SERVER`."""
    box: CommandBox | None = None
    """The box that the call's command runs in, as the tool itself says, once a probe has shown that it holds. None:
    nothing holds."""
    startup_files: tuple[str, ...] = ()
    """The startup files that the command of this call has made, and that were put aside: whether they get their names
    back is to be decided. Empty: whether the call may happen."""

    @property
    def input_json(self) -> str:
        """The arguments as JSON."""
        return write_json(self.arguments).decode()

    @property
    def digest(self) -> str:
        """SHA-256 over tool and arguments: what an approval is bound to."""
        facts: list[Any] = [self.tool_name, self.arguments, *([[*self.startup_files]] if self.startup_files else [])]
        if holds_written_numbers(facts):
            return hashlib.sha256(write_json(facts, is_sorted=True)).hexdigest()
        return hashlib.sha256(canonical_json(facts)).hexdigest()


Verdict: TypeAlias = Allow | Deny | Ask | Rewrite | Stop
"""What a gate may answer: one of the decisions, or `Ask`, which leaves it to a person."""


class Gate(Protocol):
    """A gate that decides about calls."""

    async def decide(self, request: GateRequest) -> Verdict:
        """Decide about one call. Raising denies it."""
        ...


class GateWithDeps(Protocol[Needs]):
    """A gate that decides about calls with the run's deps, for example by the rights of its user."""

    async def decide(self, request: GateRequest, deps: Needs, /) -> Verdict:
        """Decide about one call of a run with these deps, or of a run in it. Raising denies it."""
        ...


@lazy_dataclass(frozen=True, kw_only=True)
class Approval:
    """A question to whoever may answer for this run."""

    request: GateRequest
    """The call that waits."""
    question: str
    """What is asked, in words."""
    question_id: str
    """The digest of the request: the answer holds for exactly this tool and these arguments."""
    offers: tuple[Extent, ...] = ONCE
    """How far `Allow` may reach."""
    rule: str = ""
    """What `Allow("session")` and `Allow("always")` would allow, in words: it may be more than this call."""


Decision: TypeAlias = Allow | Deny | Rewrite | Stop
"""What the user, or another approver, answers to a question of a gate."""
Approver: TypeAlias = Callable[[Approval], Awaitable[Decision]]
"""Asks whoever decides, and returns the decision; `Runtime(approver=…)` takes it."""


class DecisionCodec:
    """A codec that stores decisions as JSON."""

    def encode(self, value: Decision) -> bytes:
        return write_json(self.document_of(value))

    def decode(self, data: bytes) -> Decision:
        """Return the decision.

        Raises:
            ValueError: it is none.
        """
        return self.read(read_json(data))

    def document_of(self, decision: Decision) -> dict[str, Any]:
        """Return a decision as plain JSON values."""
        facts = {each.name: getattr(decision, each.name) for each in fields(decision)}
        return {"decision": DECISION_WORDS[type(decision)], **facts}

    def read(self, named: object) -> Decision:
        """Return the decision that plain JSON values are.

        Raises:
            ValueError: they are none.
        """
        if not is_json_object(named):
            raise ValueError(f"a decision is an object, not {named!r:.100}")
        kind = next((kind for kind, word in DECISION_WORDS.items() if word == named.get("decision")), None)
        if kind is None:
            raise ValueError(
                f"there is no decision {named.get('decision')!r}: it is one of {', '.join(DECISION_WORDS.values())}"
            )
        try:
            return adapter_of(kind).validate_python(
                {name: value for name, value in named.items() if name != "decision"}
            )
        except ValidationError as error:
            raise ValueError(str(error)) from error


DECISION_WORDS: Final[Mapping[type[Decision], DecisionWord]] = {
    Allow: "allow",
    Deny: "deny",
    Rewrite: "rewrite",
    Stop: "stop",
}
DECISION: Final = DecisionCodec()


@runtime_checkable
class Settles(Protocol):
    """An optional ability of a gate: it learns how its questions were answered."""

    def settle(self, approval: Approval, decision: Decision | None) -> Decision:
        """Take note of the answer to an `Ask`, and return this answer or a narrower one. None: there is nobody to
        answer.

        Called once for each `Ask`, except for those that were cancelled. Raising denies the call.
        """
        ...


Use: TypeAlias = Literal["read", "write", "exec"]
"""What a call does with a file or a folder: `exec` runs something in it."""


@runtime_checkable
class Hides(Protocol):
    """An optional ability of a gate: it also judges the files that a call turns out to touch."""

    def hides(self, path: str, *, call: tuple[tuple[str, ...], str], use: Use, base: str) -> bool:
        """Tell whether a call that was let through must not touch this file or folder, nor show its name.

        `path` is absolute, with every link followed; so is `base`, to which relative paths of the tool belong. `call`
        is the run of the call, and its `tool_use_id`. This may be asked in any thread, and raising fails the call.
        """
        ...


@runtime_checkable
class NarrowsBoxes(Protocol):
    """An optional ability of a gate: for now, it lets commands run only in a box in which nothing may be changed."""

    def narrows_boxes(self) -> bool:
        """Tell whether the next command gets such a box. Asked before the call is judged, whose request then has it."""
        ...


@runtime_checkable
class JudgesStartupFiles(Protocol):
    """An optional ability of a gate: it reads `GateRequest.startup_files`. Others are not asked about them, since they
    would take the request for one of a call that they have let through."""

    def judges_startup_files(self) -> bool:
        """Tell whether it is asked about the startup files that a command has made."""
        ...


@runtime_checkable
class ChecksTools(Protocol):
    """An optional ability of a gate: it finds the tools that its rules name and that do not exist."""

    def tool_problems(self, names: Collection[str]) -> Iterable[Problem]:
        """Yield the problems of its rules, where `names` are those of all tools that the run and the runs in it have.
        Asked before the outermost run begins, which a problem ends."""
        ...


@lazy_dataclass(frozen=True, kw_only=True)
class Seen:
    """The result of a call, as the model will read it with the next model call."""

    tool_use_id: str
    tool_name: str
    arguments: JsonObject
    """The arguments of the call."""
    text: str
    """What the model reads."""
    untrusted: bool
    """True when the tool has run and declares that its results come from outside."""
    n_model_calls: int
    """How many model calls the run had made when the model wrote the call."""
    may_have_run: bool = True
    """False when the tool was not called: the text is the loop's own, or a gate's."""
    is_description: bool = False
    """True when nothing was called: it is what a stranger says of a tool."""


class RunGate(Gate, Protocol):
    """The gate of one run, which sees what the model reads. None of these may block; raising ends the run."""

    def hear(self, text: str) -> None:
        """Take note of what the run's user says: the prompt, what is said while it goes on, and answers to questions.

        The prompt of a sub-agent's run is its task. It counts as the user's as far as the words of the run above do.
        For a picture, a document or a sound the text is empty.
        """
        ...

    def see(self, seen: Seen) -> None:
        """Take note of a result, once it is staged."""
        ...

    def for_run(self, path: tuple[str, ...]) -> RunGate:
        """Return the gate of a run that a call of this one starts."""
        ...


@runtime_checkable
class Remembers(Protocol):
    """An optional ability of a gate: it keeps a memory of each run."""

    def for_run(self, path: tuple[str, ...]) -> RunGate:
        """Return the gate of a run that is about to begin. It is asked instead of this one."""
        ...


_ROUNDS: Final = 4
"""How often the gates may rewrite one another's arguments."""


async def consult(gates: Sequence[Gate], request: GateRequest, approve: Approver | None) -> GateRequest | Deny | Stop:
    """Ask every gate in turn. Return the request as all of them let it through, or the first refusal.

    A rewrite by one gate is shown to all others, so that nothing gets past a gate that has not seen it.
    """
    agreed: set[int] = set()
    for _ in range(_ROUNDS * len(gates)):
        index = next((each for each in range(len(gates)) if each not in agreed), None)
        if index is None:
            return request
        try:
            verdict = await _verdict(gates[index], request, approve)
            if isinstance(verdict, Rewrite):
                rewritten = replace(request, arguments=read_object(write_json(verdict.arguments)))
                if rewritten.digest != request.digest:
                    request, agreed = rewritten, set()
        except BaseException as error:
            if not is_failure(error):
                raise
            log_caught(f"The gate {getattr(gates[index], '__qualname__', type(gates[index]).__name__)}", error)
            return Deny(f"the gate failed: {name_and_words(error)}")
        if isinstance(verdict, Deny | Stop):
            return verdict
        if not isinstance(verdict, Allow | Rewrite):
            return Deny(f"the gate gave no verdict, but {type(verdict).__name__}")
        agreed.add(index)
    return request if len(agreed) == len(gates) else Deny("the gates keep rewriting the arguments for one another")


async def _verdict(gate: Gate, request: GateRequest, approve: Approver | None) -> object:
    given: object = gate.decide(_copy(request))
    verdict = await given if is_awaited(given) else given
    if not isinstance(verdict, Ask):
        return verdict
    approval = Approval(
        request=_copy(request),
        question=verdict.question,
        question_id=request.digest,
        offers=verdict.offers,
        rule=verdict.rule,
    )
    decision = None if approve is None else await answer(approval, approve)
    if isinstance(gate, Settles):
        return gate.settle(replace(approval, request=_copy(request)), decision)
    return Deny(approval.question) if decision is None else decision


def _copy(request: GateRequest) -> GateRequest:
    """Return the request with arguments that nobody else can change."""
    return replace(request, arguments=deepcopy(request.arguments))


async def answer(approval: Approval, approve: Approver) -> Decision:
    """Return what the approver decides. Whatever is no decision is a denial."""
    try:
        given: object = approve(approval)
        decision = await given if is_awaited(given) else given
    except BaseException as error:
        if not is_failure(error):
            raise
        log_caught("The approver", error)
        return Deny(f"the gate failed: {name_and_words(error)}")
    match decision:
        case Allow(extent) if extent not in get_args(Extent):
            return Deny(f"the approver answered with an unknown extent: {extent!r}")
        case Allow() | Deny() | Rewrite() | Stop():
            return decision
        case _:
            return Deny(f"the gate gave no verdict, but {type(decision).__name__}")


@lazy_dataclass(kw_only=True)
class Guard:
    """The gates of one run and of the runs above it: asked before every call, and told what the model reads."""

    posts: tuple[tuple[object, Gate], ...]
    """Each gate as it was given, and as it is asked in this run."""
    approve: Approver | None
    stop: Callable[[str], None]
    """Ends the outermost run."""
    gates: tuple[Gate, ...] = field(init=False)
    """The gates that are asked, in order."""
    memories: tuple[RunGate, ...] = field(init=False)
    """The gates that are told what the model reads."""
    failure: str | None = None
    """Why a gate's memory cannot be trusted any more: every further call is then denied."""

    def __post_init__(self) -> None:
        self.gates = tuple([asked for _, asked in self.posts])
        self.memories = tuple([asked for given, asked in self.posts if isinstance(given, Remembers)])  # pyright: ignore[reportAttributeAccessIssue] - what `for_run` returns is a `RunGate`

    async def consult(
        self, request: GateRequest, approve: Approver | None, *, own: Sequence[Gate] = ()
    ) -> GateRequest | Deny | Stop:
        """Ask every gate, and then the tool's own ones. A `Stop` has ended the run by then."""
        if self.failure is not None:
            return Deny(self.failure)
        gates = (*self.gates, *own)
        if request.startup_files:
            gates = tuple(
                [each for each in gates if isinstance(each, JudgesStartupFiles) and each.judges_startup_files()]
            )
            if not gates:
                return Deny("no gate judges startup files")
        verdict = await consult(gates, request, approve)
        _enter(call=(request.path, request.tool_use_id))
        if isinstance(verdict, Stop):
            self.stop(verdict.reason)
        return verdict

    async def find_box(
        self, find: Callable[[], Awaitable[CommandBox | None]], *, own: Sequence[Gate] = ()
    ) -> CommandBox | None:
        """Return the box of a call's command, narrowed as the gates and the tool's own ones say."""
        gates = (*self.gates, *own)
        narrows = any(isinstance(gate, NarrowsBoxes) and gate.narrows_boxes() for gate in gates)
        _enter(may_change_files=not narrows)
        return await find()

    def hear(self, content: Iterable[Block]) -> None:
        """Tell the gates what the run's user says."""
        for block in content if self.memories else ():
            if not isinstance(block, UserContent):
                continue
            text = block.text if isinstance(block, Text) else ""
            if block.origin is not None:
                self.see(_seen_of_text(text or f"[{block.type}]", block.origin))
            else:
                self._tell(lambda memory, text=text: memory.hear(text))

    def see(self, seen: Seen) -> None:
        """Tell the gates what a call resulted in."""
        self._tell(lambda memory: memory.see(seen))

    def describe(self, tool_name: str, text: str) -> None:
        """Tell the gates what the model reads of a tool that others describe, before any call."""
        text = f"[its description] {text}"
        self.see(
            Seen(
                tool_use_id="",
                tool_name=tool_name,
                arguments={},
                text=text,
                untrusted=True,
                n_model_calls=0,
                is_description=True,
            )
        )

    def recall(self, messages: Sequence[Message], is_untrusted: Callable[[str], bool]) -> None:
        """Tell the gates of an earlier conversation. A result is trusted if it was when it came, and if its tool is
        now: `is_untrusted` tells that by the tool's name. A text of the user's side after a result that is not trusted
        may quote it, so it is left out."""
        if not self.memories:
            return
        calls: dict[str, ToolUse] = {}
        is_clean = True
        for block in (block for message in messages for block in _blocks_to_gates(message)):
            if isinstance(block, HostedCall):
                is_clean = is_clean and not block.is_untrusted
                self.see(make_seen_hosted_call(block, n_model_calls=0))
            elif isinstance(block, ToolUse):
                calls[block.id] = block
            elif isinstance(block, ToolResult):
                call = calls[block.tool_use_id]
                untrusted = bool(block.untrusted) or is_untrusted(call.name)
                is_clean = is_clean and not untrusted
                self.see(make_seen_result(call, block, untrusted=untrusted, n_model_calls=0))
            elif is_clean:
                self.hear([block])

    def _tell(self, tell: Callable[[RunGate], None]) -> None:
        try:
            for memory in self.memories:
                tell(memory)
        except BaseException as error:
            if not is_failure(error):
                raise
            log_caught("The memory of a gate", error)
            self.failure = f"the memory of a gate failed: {name_and_words(error)}"


def _blocks_to_gates(message: Message) -> Iterator[UserContent | ToolUse | ToolResult | HostedCall]:
    yield from hosted_calls(message.content) if message.role == "assistant" else ()
    for block in message.content:
        if isinstance(block, ToolUse | ToolResult) or (isinstance(block, UserContent) and message.role == "user"):
            yield block


def _seen_of_text(text: str, origin: TextOrigin) -> Seen:
    """Return a notification, mail, a summary or a memory as gates see it: it is not the user who wrote what it says."""
    source = {
        "notice": "task_output",
        "mail": "send_message",
        "summary": "summary",
        "memory": "memory",
        "stranger": "input",
    }[origin]
    return Seen(tool_use_id="", tool_name=source, arguments={}, text=text, untrusted=True, n_model_calls=0)


def make_seen_result(
    call: ToolUse, result: ToolResult, *, untrusted: bool, n_model_calls: int, may_have_run: bool = True
) -> Seen:
    """Return a result as gates see it."""
    return Seen(
        tool_use_id=call.id,
        tool_name=call.name,
        arguments=call.input,
        text=result.text,
        untrusted=untrusted,
        n_model_calls=n_model_calls,
        may_have_run=may_have_run,
    )


def make_seen_hosted_call(call: HostedCall, *, n_model_calls: int) -> Seen:
    """Return what a tool of the provider's own did as gates see it."""
    return Seen(
        tool_use_id=call.id,
        tool_name=call.tool,
        arguments={"asked": call.asked},
        text=call.text,
        untrusted=call.is_untrusted,
        n_model_calls=n_model_calls,
    )


def guard_for(
    gates: Iterable[Gate | GateWithDeps[Any]],
    approve: Approver | None,
    *,
    path: tuple[str, ...],
    stop: Callable[[str], None],
    deps: object = None,
    takes_deps: Container[int] = (),
) -> Guard:
    """Return the guard of a run that is about to begin here. `takes_deps` holds the `id` of each gate that decides with
    `deps`: those of this run, also about the calls of runs in it."""
    above = current_guard()
    inherited = () if above is None else above.posts
    known = [given for given, _ in inherited]
    posts: list[tuple[object, Gate]] = []
    for gate in gates:
        if not any(gate is each for each in known):
            takes = id(gate) in takes_deps
            posts.append((gate, _Informed(cast("GateWithDeps[Any]", gate), deps) if takes else _enter_gate(gate, path)))
    posts += [(given, _enter_gate(asked, path)) for given, asked in inherited]
    if above is not None:
        return Guard(posts=tuple(posts), approve=above.approve or approve, stop=above.stop)
    return Guard(posts=tuple(posts), approve=approve, stop=stop)


def _enter_gate(gate: object, path: tuple[str, ...]) -> Gate:
    return gate.for_run(path) if isinstance(gate, Remembers) else cast("Gate", gate)


@lazy_dataclass(frozen=True)
class _Informed:
    """A gate that decides with deps, as it is asked in one run."""

    asked: GateWithDeps[Any]
    deps: Any = field(repr=False)

    async def decide(self, request: GateRequest) -> Verdict:
        return await self.asked.decide(request, self.deps)


@lazy_dataclass(frozen=True)
class _GuardedPlace:
    """A place where code runs, as gates know it."""

    guard: Guard | None = None
    """The guard of the run that goes on here: its gates judge each call."""
    call: tuple[tuple[str, ...], str] | None = None
    """The run and the `tool_use_id` of the call that was let through last here."""
    may_change_files: bool = True
    """False: the call that is judged or made here has a box in which no file may be changed."""


_UNGUARDED: Final = _GuardedPlace()
_here: ContextVar[_GuardedPlace] = ContextVar("journeyman_guard", default=_UNGUARDED)


def current_guard() -> Guard | None:
    """Return what guards the run that goes on here."""
    return _here.get().guard


def may_change_files() -> bool:
    """Tell whether the call that is judged or made here may change files in its box."""
    return _here.get().may_change_files


def _enter(**changes: Any) -> None:
    _here.set(copy_with(_here.get(), **changes))


NO_GUARD: Final = Guard(posts=(), approve=None, stop=lambda _: None)
"""The guard of a run that has not begun, or was left behind."""


def enter_guard(guard: Guard) -> None:
    """Let a guard with gates or an approver guard what goes on in this context, and the runs that begin in it, from now
    on."""
    if guard.posts or guard.approve is not None:
        _enter(guard=guard)


def make_path_hider(use: Use, base: str) -> Callable[[str], bool] | None:
    """Return a function that tells of each path whether this call must not touch it, nor show its name. None: no gate
    `Hides`. `base` is the folder that relative paths of the tool belong to."""
    here = _here.get()
    guard, call = here.guard, here.call
    gates = [gate for gate in (() if guard is None else guard.gates) if isinstance(gate, Hides)]
    if not gates or call is None:
        return None
    return lambda path: any(gate.hides(path, call=call, use=use, base=base) for gate in gates)
