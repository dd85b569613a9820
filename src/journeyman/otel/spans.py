"""The spans of a recording: runs, their attempts, model requests and calls, each a child of what asked for it.

Nothing here raises: what goes wrong is logged, once, and costs a span.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, cast
from urllib.parse import urlsplit

from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, Tracer, get_current_span
from opentelemetry.trace.propagation import set_span_in_context

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import is_list_or_tuple
from journeyman.errors import ProviderError, name_and_words
from journeyman.events import (
    ApproverAnswered,
    AttemptCompleted,
    AttemptStarted,
    CallAbandoned,
    CallOutcome,
    ContextCompacted,
    GateDecided,
    LayerCompleted,
    MessageCommitted,
    RunFailed,
    RunResumed,
    RunStarted,
    RunSucceeded,
    SandboxRefused,
    SinkEvent,
    ToolCalled,
    ToolFinished,
)
from journeyman.journal import RecordingSink, TapeEnd, TapeKind, Where, as_json, new_id
from journeyman.model import Model, ModelSettings, Request, Response, Tap, ToolSpec
from journeyman.otel import names
from journeyman.otel.content import Shapes
from journeyman.otel.meter import Meter
from journeyman.result import plain_output
from journeyman.tools.known_secrets import known_secrets
from journeyman.tools.redaction import Redactor
from journeyman.types import RunPath, ToolUse, Usage

P = ParamSpec("P")

_log = logging.getLogger("journeyman")
_APART: Final = contexts.create_key("journeyman-apart")
"""In a context: the span that started the work that goes on there, and does not wait for it."""
_NOWHERE: Final = nullcontext()
_CANCELLED: Final = "EXECUTION_CANCELLED"


@lazy_dataclass(frozen=True, kw_only=True)
class Instruments:
    """The tracer and the meter that spans and metrics are made with, and the shapes of their messages."""

    tracer: Tracer
    meter: Meter
    shapes: Shapes | None
    """Makes what goes out of what is said; None: nothing of it does."""
    redactor: Redactor = field(default_factory=Redactor)
    """Takes secrets out of everything else that goes out."""

    def start_span(
        self,
        name: str,
        context: Context | None,
        facts: Mapping[str, Any],
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Sequence[Link] = (),
        start_time: int | None = None,
    ) -> Span:
        """Start a span with attributes. Like the methods below, it is the only way out to OpenTelemetry."""
        clear = self._clear({**facts})
        return self.tracer.start_span(
            self.redactor.redacted_texts([name])[0],
            context,
            kind=kind,
            attributes=clear,
            links=links,
            start_time=start_time,
        )

    def tell(self, span: Span, facts: Mapping[str, Any]) -> None:
        """Give a span more attributes."""
        span.set_attributes(self._clear(facts))

    def add_event(self, span: Span, name: str, facts: Mapping[str, Any]) -> None:
        """Tell of what happened in a span."""
        span.add_event(name, self._clear(facts))

    def mark(self, span: Span, code: str, message: str = "") -> None:
        """Mark the span of something that has failed, with the code and the message."""
        self.tell(span, {names.ERROR: code})
        span.set_status(Status(StatusCode.ERROR, self.redactor.redacted_text(message or code)))

    def _clear(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return facts without secrets. What `shapes` has made has none any more; ids look like secrets, so they are
        asked for known ones only."""
        told, kept = {**facts}, names.SHAPED
        found: list[str] = []
        for name, value in facts.items():
            if isinstance(value, str):
                if name in names.IDS:
                    told[name] = known_secrets.mark(value)
                elif name not in kept:
                    found.append(name)
            elif is_list_or_tuple(value):
                told[name] = tuple(self.redactor.redacted_texts([str(each) for each in value]))
        if found:
            told.update(zip(found, self.redactor.redacted_texts([facts[name] for name in found]), strict=True))
        return told


def context_with_links() -> tuple[Context, Sequence[Link]]:
    """Return the context for a span that begins here, and a link to the span that started this work and does not wait
    for it."""
    here = contexts.get_current()
    origin = contexts.get_value(_APART, here)
    return here, (Link(origin),) if isinstance(origin, SpanContext) else ()


@lazy_dataclass()
class OpenRun:
    """A run that goes on."""

    span: Span
    agent: str
    model: str
    is_apart: bool
    """True when nothing waits for it."""
    began_s: float = field(default_factory=time.perf_counter)
    numbers_attempts: bool = False
    """True when it may have several attempts, so that each has a span."""
    attempt: Span | None = None
    calls: dict[str, Span] = field(default_factory=dict[str, Span])
    """The spans of calls, by id."""
    errors: dict[str, str] = field(default_factory=dict[str, str])
    """The kind of failure of each call, by its id."""
    tools: Sequence[ToolSpec] = ()
    """The tools of which the model was told last."""
    has_input: bool = False
    n_requests: int = 0
    n_calls: int = 0


def _quietly(take: Callable[Concatenate[SpanTape, P], None]) -> Callable[Concatenate[SpanTape, P], None]:
    """Return a method that logs what goes wrong in it, once for each tape."""

    @wraps(take)
    def quiet(tape: SpanTape, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            take(tape, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - of a processor or a provider of the user's
            tape.regret(error)

    return quiet


class SpanTape:
    """A tape that reports one recording as spans."""

    def __init__(
        self, instruments: Instruments, kind: TapeKind, *, id: str | None, remote: Context | None, conversation: str
    ) -> None:
        self._instruments = instruments
        self._kind = kind
        self._id = id
        # Without a session nobody names the conversation, and its runs would stand apart.
        if not conversation and kind in ("chat", "team"):
            conversation = new_id(time.time())
        self._common: Mapping[str, str] = {names.CONVERSATION: conversation} if conversation else {}
        """What every span here has."""
        self._remote = remote
        self._runs: dict[RunPath, OpenRun] = {}
        self._has_regretted = False

    is_behind = False
    outside = None
    wants_words = False

    @_quietly
    def hear(self, event: SinkEvent) -> None:
        take, run = self.takes.get(type(event)), self._runs.get(event.path)
        if isinstance(event, RunStarted | RunResumed):
            self._run_began(event)
        elif take is not None and run is not None:
            take(self, run, event)

    def tap(self, where: Where, model: Model, request: Request) -> RequestSpan:
        path, place = where
        run = self._runs.get(path)
        around = None if run is None else run.attempt or run.span
        span = RequestSpan(self._instruments, model, request, "" if run is None else run.agent)
        if run is not None:
            run.n_requests += 1
            run.tools = request.prefix.tools
        try:
            span.begin(around, {**self._common, names.ATTEMPT: place.attempt, names.ITERATION: place.iteration})
        except Exception as error:  # noqa: BLE001 - as above
            self.regret(error)
        return span

    def active(self, path: RunPath, use: ToolUse | None = None) -> AbstractContextManager[object]:
        run = self._runs.get(path)
        if run is None:
            return _NOWHERE
        if use is None:
            return Active(run.span)
        span = run.calls.get(use.id)
        if span is None:  # it was begun in an earlier life of the run
            self._begin_call(run, use.id, use.name)
            span = run.calls.get(use.id, run.span)
        return Active(span)

    @_quietly
    def apart(self) -> None:
        origin = get_current_span().get_span_context()
        if origin.is_valid:
            # Never taken back: it is the context of the work alone, and ends with it.
            contexts.attach(contexts.set_value(_APART, origin, Context()))

    async def room(self) -> None:
        """Do nothing: nothing waits here to be written."""

    def ended_early(self) -> None:
        """Do nothing: nothing is written here, so nothing can fail to be."""

    async def end(self, status: TapeEnd, code: str | None = None) -> None:
        if status == "left" and self._kind in ("chat", "team"):
            code = _CANCELLED  # a run that still goes on there is stopped
        apart = [path for path, run in self._runs.items() if run.is_apart]
        for path in [*self._runs]:
            if any(path[: len(each)] == each for each in apart):
                continue  # nobody waits for it: it goes on
            run = self._runs[path]
            if status == "left" and code is None:
                self._instruments.tell(run.span, {names.LEFT: True})
            self._close(path, run, None if status == "left" and code is None else code or _CANCELLED)

    def regret(self, error: Exception) -> None:
        """Log, once, that something could not be reported."""
        if not self._has_regretted:
            self._has_regretted = True
            _log.warning("telemetry of a run is not complete: %s", name_and_words(error))

    def _run_began(self, event: RunStarted | RunResumed) -> None:
        if isinstance(event, RunResumed):
            facts: dict[str, Any] = {names.RESUMED: True, names.AGENT_DESCRIPTION: event.description}
            # Behind `#` is the number of an input of a batch.
            self._begin_run(event.path, event.path[-1].partition("#")[0], facts)
            return
        facts = {names.REQUEST_MODEL: event.model.partition(":")[2], names.AGENT_DESCRIPTION: event.description}
        if event.mode is not None:
            facts[names.MODE] = event.mode
        run = self._begin_run(event.path, event.agent, facts, tool_use_id=event.tool_use_id, mode=event.mode)
        run.numbers_attempts = event.max_attempts > 1

    def _begin_run(
        self,
        path: RunPath,
        agent: str,
        facts: dict[str, Any],
        *,
        tool_use_id: str | None = None,
        mode: str | None = None,
    ) -> OpenRun:
        above = self._runs.get(path[:-1])
        call = None if above is None or tool_use_id is None else above.calls.get(tool_use_id)
        context, links = context_with_links()
        is_apart = bool(links)
        if self._remote is not None and above is None:
            context, links = self._remote, ()
        elif mode == "background":
            is_apart = True
            if call is not None:
                context, links = Context(), (Link(call.get_span_context()),)
        elif call is not None:
            context, links = set_span_in_context(call), ()
        # Below the first span of work apart, each has one above it, and needs no link.
        if get_current_span(context).get_span_context().is_valid:
            links = ()
        facts |= {names.OPERATION: names.INVOKE_AGENT, names.AGENT_NAME: agent, names.PATH: "/".join(path)}
        facts |= self._common
        if not facts[names.AGENT_DESCRIPTION]:
            del facts[names.AGENT_DESCRIPTION]
        if self._id is not None:
            facts[names.RUN_ID] = self._id
        span = self._instruments.start_span(f"{names.INVOKE_AGENT} {agent}", context, facts, links=links)
        self._runs[path] = run = OpenRun(span, agent, str(facts.get(names.REQUEST_MODEL, "")), is_apart)
        return run

    def _message_committed(self, run: OpenRun, event: MessageCommitted) -> None:
        shapes = self._instruments.shapes
        if shapes is not None and not run.has_input and event.message.role == "user":
            run.has_input = True
            self._instruments.tell(run.span, {names.INPUT: shapes.messages([event.message])})

    def _run_ended(self, run: OpenRun, event: RunSucceeded | RunFailed) -> None:
        shapes = self._instruments.shapes
        facts = {} if event.metadata.usage is None else usage_attributes(event.metadata.usage)
        facts = {name: value for name, value in facts.items() if name not in names.OF_REQUESTS_ONLY}
        facts[names.ATTEMPTS] = len(event.metadata.attempts)
        code, message = None, ""
        if isinstance(event, RunFailed):
            code, message = str(event.error.code), "" if shapes is None else event.error.message
        elif shapes is not None:
            output = plain_output(event.output, None)
            facts[names.OUTPUT] = shapes.text_message(
                "assistant", output if isinstance(output, str) else as_json(output).decode()
            )
        self._instruments.tell(run.span, facts)
        self._close(event.path, run, code, message)

    def _close(self, path: RunPath, run: OpenRun, code: str | None, message: str = "") -> None:
        """End the spans of a run, those of its calls and of its attempt first."""
        del self._runs[path]
        for span in run.calls.values():
            if code is not None:
                self._instruments.mark(span, code)
            span.end()
        if run.attempt is not None:
            run.attempt.end()
        if code is not None:
            self._instruments.mark(run.span, code, message)
        run.span.end()
        self._instruments.meter.invoke(
            time.perf_counter() - run.began_s,
            run.agent,
            run.model,
            error=code,
            requests=run.n_requests,
            calls=run.n_calls,
        )

    def _attempt(self, run: OpenRun, event: AttemptStarted | AttemptCompleted) -> None:
        if isinstance(event, AttemptCompleted):
            if run.attempt is not None:
                self._instruments.tell(run.attempt, {names.SUCCEEDED: event.succeeded})
                run.attempt.end()
                run.attempt = None
        elif run.numbers_attempts:
            facts = {names.ATTEMPT: event.attempt, names.AGENT_NAME: run.agent, names.SPAN_KIND: names.CHAIN}
            run.attempt = self._instruments.start_span(
                f"attempt {event.attempt}", set_span_in_context(run.span), {**facts, **self._common}
            )

    def _tool_called(self, run: OpenRun, event: ToolCalled) -> None:
        self._begin_call(run, event.tool_use_id, event.tool_name)
        if self._instruments.shapes is not None:
            given = self._instruments.shapes.text(as_json(event.tool_input).decode())
            self._instruments.tell(run.calls[event.tool_use_id], {names.ARGUMENTS: given})

    def _begin_call(self, run: OpenRun, id: str, name: str, *, ago_s: float | None = None) -> None:
        """Begin the span of a call; `ago_s`: it began so many seconds ago."""
        run.n_calls += 1
        described = next((tool.description for tool in run.tools if tool.name == name), "")
        run.calls[id] = self._instruments.start_span(
            f"{names.EXECUTE_TOOL} {name}",
            set_span_in_context(run.attempt or run.span),
            {
                names.OPERATION: names.EXECUTE_TOOL,
                names.TOOL_NAME: name,
                names.TOOL_TYPE: names.FUNCTION,
                names.CALL_ID: id,
                names.AGENT_NAME: run.agent,
                **({names.TOOL_DESCRIPTION: described} if described else {}),
                **self._common,
            },
            # OpenTelemetry counts in nanoseconds.
            start_time=None if ago_s is None else time.time_ns() - int(ago_s * 1e9),
        )

    def _tool_finished(self, run: OpenRun, event: ToolFinished) -> None:
        if event.tool_use_id not in run.calls:  # it was begun in an earlier life of the run
            self._begin_call(run, event.tool_use_id, event.tool_name, ago_s=event.duration_s)
        span = run.calls.pop(event.tool_use_id)
        error = run.errors.pop(event.tool_use_id, None)
        facts = {names.TOOL_NAME: event.tool_name, names.TOOL_TYPE: names.FUNCTION, names.AGENT_NAME: run.agent}
        if event.is_error:
            self._instruments.mark(span, error or "rejected")
            facts[names.ERROR] = error or "rejected"
        if event.cached:
            self._instruments.tell(span, {names.CACHED: True})
        if self._instruments.shapes is not None:
            self._instruments.tell(span, {names.RESULT: self._instruments.shapes.text(event.tool_result)})
        span.end()
        self._instruments.meter.tool_s.record(event.duration_s, facts)

    def _add_event(
        self, run: OpenRun, event: LayerCompleted | ContextCompacted | SandboxRefused | CallAbandoned
    ) -> None:
        """Add what has no span of its own to the span in which it happened."""
        span, facts = run.attempt or run.span, dict[str, Any]()
        match event:
            case LayerCompleted(outcome=outcome):
                label = "passed" if outcome.passed else "failed"
                name, facts = names.EVALUATED, {names.EVALUATION_NAME: outcome.name, names.EVALUATION_LABEL: label}
            case ContextCompacted():
                name, facts = names.COMPACTED, {names.REASON: event.reason, names.TOKENS_BEFORE: event.before_tokens}
                facts[names.TOKENS_AFTER] = event.after_tokens
            case SandboxRefused():
                name, span = names.REFUSED, run.calls.get(event.tool_use_id, span)
                facts = {names.SANDBOX: event.sandbox, names.CAUSE: event.cause}
                if self._instruments.shapes is not None:  # its need names the same
                    told = {names.WHAT: event.what, names.NEED: event.need}
                    facts |= {name: self._instruments.shapes.text(text) for name, text in told.items() if text}
            case CallAbandoned():
                name, span = names.ABANDONED, run.calls.get(event.tool_use_id or "", span)
        self._instruments.add_event(span, name, facts)

    def _call_noted(self, run: OpenRun, event: ApproverAnswered | GateDecided | CallOutcome) -> None:
        if isinstance(event, CallOutcome):
            if event.error is not None:
                run.errors[event.tool_use_id] = event.error
        elif (span := run.calls.get(event.tool_use_id)) is not None:
            name = names.DECIDED if isinstance(event, GateDecided) else names.ANSWERED
            self._instruments.add_event(span, name, {names.DECISION: event.decision})

    takes = cast(
        "Mapping[type, Callable[[SpanTape, OpenRun, Any], None]]",
        {
            MessageCommitted: _message_committed,
            RunSucceeded: _run_ended,
            RunFailed: _run_ended,
            AttemptStarted: _attempt,
            AttemptCompleted: _attempt,
            LayerCompleted: _add_event,
            ContextCompacted: _add_event,
            ToolCalled: _tool_called,
            ToolFinished: _tool_finished,
            SandboxRefused: _add_event,
            CallAbandoned: _add_event,
            CallOutcome: _call_noted,
            GateDecided: _call_noted,
            ApproverAnswered: _call_noted,
        },
    )
    """What takes each kind of event of a run that goes on."""


class Active:
    """A block in which a span is the current one."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: Span) -> None:
        self._span = span
        self._token: Any = None

    def __enter__(self) -> None:
        self._token = contexts.attach(set_span_in_context(self._span))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not GeneratorExit:  # a coroutine that is thrown away is closed in any context
            contexts.detach(self._token)


class RequestSpan:
    """The span of one request to a model."""

    def __init__(self, instruments: Instruments, model: Model, request: Request, agent: str) -> None:
        self._instruments = instruments
        self._model = model
        self._request = request
        self._agent = agent
        self._began_s = time.perf_counter()
        self._span: Span | None = None
        self._active: Active | None = None
        self._first_s: float | None = None

    def begin(self, around: Span | None, facts: dict[str, Any]) -> None:
        """Begin the span, which is the current one from now on."""
        shapes, request, model = self._instruments.shapes, self._request, self._model
        facts |= self._common()
        if self._agent:
            facts[names.AGENT_NAME] = self._agent
        most = request.max_tokens or request.settings.max_tokens
        if most:
            facts[names.REQUEST_MAX_TOKENS] = most
        facts |= _settings_of(request.settings)
        if getattr(model, "streaming", False) is True:  # of others it is known once something has come
            facts[names.REQUEST_STREAM] = True
        facts[names.OUTPUT_TYPE] = "text" if request.prefix.output is None else "json"
        if shapes is not None:
            facts |= {names.SYSTEM: shapes.system(request.prefix)} if request.prefix.system else {}
            facts |= {names.TOOLS: shapes.tools(request.prefix)} if request.prefix.tools else {}
            facts[names.INPUT] = shapes.messages(request.messages)
        context = None if around is None else set_span_in_context(around)
        self._span = self._instruments.start_span(f"{names.CHAT} {model.name}", context, facts, kind=SpanKind.CLIENT)
        # Without a block: it ends where the answer, or the failure, is noted.
        self._active = Active(self._span)
        self._active.__enter__()

    def note_body(self, body: bytes, pieces: Sequence[bytes]) -> None:
        """Do nothing: the span tells of the request by its messages."""

    def note_request(self, url: str, headers: Mapping[str, str], body: bytes) -> None:
        if self._span is None or not self._span.is_recording():
            return
        try:
            address = urlsplit(url)
            # The conventions want a port with each address.
            port = address.port or (443 if address.scheme == "https" else 80)
            self._instruments.tell(self._span, {names.SERVER_ADDRESS: address.hostname or "", names.SERVER_PORT: port})
        except ValueError:
            return  # an address that the request itself will fail with

    def note_status(self, status: int, request_id: str | None) -> None:
        """Do nothing: the answer is told of by `note_data` and `note_response`."""

    def note_data(self, data: bytes | Sequence[tuple[bytes, bytes]]) -> None:
        # What comes as a whole is bytes: only a stream has a first piece.
        if self._first_s is None and not isinstance(data, bytes):
            self._first_s = time.perf_counter() - self._began_s
            if self._span is not None:
                self._instruments.tell(self._span, {names.REQUEST_STREAM: True})

    def note_response(self, response: Response) -> None:
        reason = names.FINISHES.get(response.stop_reason, response.stop_reason)
        facts: dict[str, Any] = {**usage_attributes(response.usage), names.FINISH_REASONS: (reason,)}
        facts |= {names.RESPONSE_MODEL: response.model} if response.model else {}
        facts |= {names.RESPONSE_ID: response.id} if response.id else {}
        if self._instruments.shapes is not None:
            facts[names.OUTPUT] = self._instruments.shapes.answer(response)
        self._end(facts, None)

    def note_failure(self, error: BaseException) -> None:
        if isinstance(error, ProviderError):
            kind = error.kind
        else:
            kind = _CANCELLED if isinstance(error, asyncio.CancelledError) else type(error).__name__
        self._end({}, kind)

    def _common(self) -> dict[str, Any]:
        provider = names.PROVIDERS.get(self._model.provider, self._model.provider)
        return {names.OPERATION: names.CHAT, names.PROVIDER: provider, names.REQUEST_MODEL: self._model.name}

    def _end(self, facts: dict[str, Any], error: str | None) -> None:
        common = self._common()
        if self._first_s is not None:
            facts[names.FIRST_CHUNK] = self._first_s
            self._instruments.meter.first_chunk.record(self._first_s, common)
        if self._span is not None:
            self._instruments.tell(self._span, facts)
            if error is not None:
                self._instruments.mark(self._span, error)
            self._span.end()
        if self._active is not None:
            self._active.__exit__(None, None, None)
        self._instruments.meter.ask(time.perf_counter() - self._began_s, facts, common, error)


def _settings_of(settings: ModelSettings) -> dict[str, Any]:
    """Return the settings of a request as attributes; of the further fields those that say how the model picks its
    words."""
    facts: dict[str, Any] = {}
    if settings.stop:
        facts[names.REQUEST_STOPS] = settings.stop
    if isinstance(settings.thinking, str):
        facts[names.REASONING_LEVEL] = settings.thinking
    within = settings.extra.get(names.SAMPLING_WITHIN)
    own = {"temperature": settings.temperature, "top_p": settings.top_p, "seed": settings.seed}
    given = {**own, **settings.extra, **(within if isinstance(within, dict) else {})}
    for name, (attribute, kind) in names.SAMPLING.items():
        value = given.get(name)
        # `bool` is a kind of `int`; and a fraction is no value where the attribute is whole.
        if isinstance(value, int | float) and not isinstance(value, bool) and kind(value) == value:
            facts[attribute] = kind(value)
    return facts


def usage_attributes(usage: Usage) -> dict[str, Any]:
    """Return the usage as attributes. The conventions count cached tokens among those of the input."""
    cached = (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)
    facts: dict[str, Any] = {
        names.INPUT_TOKENS: usage.input_tokens + cached,
        names.OUTPUT_TOKENS: usage.output_tokens,
        names.CACHE_READ: usage.cache_read_tokens,
        names.CACHE_WRITE: usage.cache_write_tokens,
        names.REASONING: usage.reasoning_tokens,
        names.COST: usage.cost,
        names.REQUESTS: usage.requests,
    }
    return {name: value for name, value in facts.items() if value is not None}


if TYPE_CHECKING:
    _tape: type[RecordingSink] = SpanTape
    _tap: type[Tap] = RequestSpan
