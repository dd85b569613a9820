"""What guards the calls of one run: its gates, those of the runs above it, and who answers what they ask.

A run that a call starts passes its own gates, and then those of every run above: they can only narrow. The outermost
approver answers, and an approver that says stop ends the outermost run. Gates that remember are told here what the
model reads. Where there is neither gate nor approver there is no `Guard` at all. Imports `cancel` and `gate`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field

from journeyman.cancel import is_failure
from journeyman.errors import name_and_words
from journeyman.events.task import NOTICE
from journeyman.events.team import MAIL_MARK
from journeyman.gate import Approver, Deny, Gate, GateRequest, Remembers, RunGate, Seen, Stop, consult
from journeyman.types import Block, Message, Text, ToolResult, ToolUse


@dataclass(slots=True, kw_only=True)
class Guard:
    """What guards the calls of one run."""

    posts: tuple[tuple[Gate, Gate], ...]
    """Each gate as it was given, and as it is asked in this run."""
    approve: Approver | None
    stop: Callable[[str], None]
    """Ends the outermost run."""
    gates: tuple[Gate, ...] = field(init=False)
    """Those that are asked, in order."""
    memories: tuple[RunGate, ...] = field(init=False)
    """The gates that are told what the model reads."""
    failure: str | None = None
    """Why the memory of a gate cannot be relied on: from then on every call is denied."""

    def __post_init__(self) -> None:
        self.gates = tuple([asked for _, asked in self.posts])
        self.memories = tuple([asked for given, asked in self.posts if isinstance(given, Remembers)])  # pyright: ignore[reportAttributeAccessIssue] - what `for_run` returns is a `RunGate`

    async def consult(self, request: GateRequest, approve: Approver | None) -> GateRequest | Deny | Stop:
        """Ask every gate. A `Stop` has ended the run by then."""
        if self.failure is not None:
            return Deny(self.failure)
        verdict = await consult(self.gates, request, approve)
        if isinstance(verdict, Stop):
            self.stop(verdict.reason)
        return verdict

    def hear(self, content: Iterable[Block]) -> None:
        """Tell the gates what the run's user says."""
        for block in content if self.memories else ():
            if isinstance(block, Text) and block.text.startswith((NOTICE, MAIL_MARK)):
                self.see(_told(block.text))
            elif isinstance(block, Text):
                self._tell(lambda memory, text=block.text: memory.hear(text))

    def see(self, seen: Seen) -> None:
        """Tell the gates what a call resulted in."""
        self._tell(lambda memory: memory.see(seen))

    def recall(self, messages: Sequence[Message], is_untrusted: Callable[[str], bool]) -> None:
        """Tell the gates of an earlier conversation. What its user's side says after a result that is not trusted may
        quote that, so it is left out."""
        if not self.memories:
            return
        calls: dict[str, ToolUse] = {}
        is_clean = True
        for block in (block for message in messages for block in _heard_or_seen(message)):
            if isinstance(block, ToolUse):
                calls[block.id] = block
            elif isinstance(block, ToolResult):
                call = calls[block.tool_use_id]
                is_clean = is_clean and not is_untrusted(call.name)
                self.see(seen_of(call, block, untrusted=is_untrusted(call.name), n_model_calls=0))
            elif is_clean:
                self.hear([block])

    def _tell(self, tell: Callable[[RunGate], None]) -> None:
        try:
            for memory in self.memories:
                tell(memory)
        except BaseException as error:
            if not is_failure(error):
                raise
            self.failure = f"the memory of a gate failed: {name_and_words(error)}"


def _heard_or_seen(message: Message) -> Iterator[Text | ToolUse | ToolResult]:
    for block in message.content:
        if isinstance(block, ToolUse | ToolResult) or (isinstance(block, Text) and message.role == "user"):
            yield block


def _told(notice: str) -> Seen:
    """Return a notification, or mail, as gates see it: it is not the user who wrote what it quotes."""
    source = "task_output" if notice.startswith(NOTICE) else "send_message"
    return Seen(tool_use_id="", tool_name=source, arguments={}, text=notice, untrusted=True, n_model_calls=0)


def seen_of(call: ToolUse, result: ToolResult, *, untrusted: bool, n_model_calls: int) -> Seen:
    """Return a result as gates see it."""
    return Seen(
        tool_use_id=call.id,
        tool_name=call.name,
        arguments=call.input,
        text=result.text,
        untrusted=untrusted,
        n_model_calls=n_model_calls,
    )


def guard_for(
    gates: Iterable[Gate], approve: Approver | None, *, path: tuple[str, ...], stop: Callable[[str], None]
) -> Guard | None:
    """Return what guards a run that is about to begin here."""
    above = current_guard.get()
    inherited = () if above is None else above.posts
    known = [given for given, _ in inherited]
    posts = [(gate, _posted(gate, path)) for gate in gates if not any(gate is each for each in known)]
    posts += [(given, _posted(asked, path)) for given, asked in inherited]
    if above is not None:
        return Guard(posts=tuple(posts), approve=above.approve or approve, stop=above.stop)
    if not posts and approve is None:
        return None
    return Guard(posts=tuple(posts), approve=approve, stop=stop)


def _posted(gate: Gate, path: tuple[str, ...]) -> Gate:
    return gate.for_run(path) if isinstance(gate, Remembers) else gate


current_guard: ContextVar[Guard | None] = ContextVar("journeyman_guard", default=None)
"""What guards the run that is going on here."""


def guarding(guard: Guard | None) -> AbstractContextManager[None]:
    """Let the runs that are started in this block pass the guard of this run, too."""
    return nullcontext() if guard is None else _guarding(guard)


@contextmanager
def _guarding(guard: Guard) -> Generator[None]:
    token = current_guard.set(guard)
    try:
        yield
    finally:
        current_guard.reset(token)
