"""Agents served over MCP: each is a tool, each call of it is a run.

Protocol in, protocol out: what a client sends becomes the input of a run, and events, questions and the result go back.
Of the two kinds of clients, the older can be asked while a call goes on; to the newer a question is the answer to the
call, which they then repeat with what they were asked for. An input that is not an object, such as a text, is given as
the only property `input`; such an output is handed in as the only property `output`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from types import TracebackType
from typing import Any, Final, TypeAlias

from mcp import MCPError, types
from mcp.server import Server, ServerRequestContext
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic_core import from_json, to_json

from journeyman import events
from journeyman.agent import DEFAULT_RUNTIME, Agent, Runtime
from journeyman.cancellation import Abort
from journeyman.connect import connect
from journeyman.definition.foreign import refuse_old_arguments
from journeyman.definition.problems import join_sentences
from journeyman.endings import ErrorInfo, InvalidInputContext
from journeyman.errors import (
    DefinitionError,
    InvalidArguments,
    ModelUnavailable,
    name_and_words,
    visible_json,
    with_its_end,
)
from journeyman.events import Event, Listener
from journeyman.gate import Allow, Approval, Approver, Decision, Deny
from journeyman.inbox.questions import PendingQuestions
from journeyman.loop.run import run
from journeyman.machine.version import package_version
from journeyman.model import opened
from journeyman.result import Failure, Result, Success
from journeyman.serve.refusals import served_problems
from journeyman.tools.clear_events import without_known
from journeyman.tools.collection import do_aside
from journeyman.tools.known_secrets import known_secrets
from journeyman.tools.redaction import without_secrets
from journeyman.tools.schema import CheckedValue, Fields, OutputSchema, Parameter
from journeyman.types import JsonObject, Usage

PATIENCE_S: Final = 600.0
"""How long a run waits for the answer to a question, in seconds, before it is given up."""
MAX_CALLS: Final = 64
"""How many calls may be under way at once, those that wait for an answer included."""
_NOTES_KEPT: Final = 64

_log = logging.getLogger("journeyman")
USAGE: Final = "journeyman/usage"
"""The key in a result's `_meta` under which tokens and cost stand."""
FAILURE: Final = "journeyman/failure"
"""The key in a result's `_meta` under which a failure stands as data."""
_INPUT: Final = "input"
_OUTPUT: Final = "output"
_ARGUMENTS_SHOWN: Final = 4_000
_FORM: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "decision": {"type": "string", "enum": ["allow", "deny"], "description": "Whether the call may happen."},
        "reason": {"type": "string", "description": "Why not, for the agent to read."},
    },
    "required": ["decision"],
}


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """A report on the progress of a run, for a client that follows it."""

    number: int
    """The numbers of a call's notes begin at 1 and grow."""
    text: str


@dataclass(frozen=True, slots=True)
class ClientQuestions:
    """The client must answer these before the run goes on."""

    questions: Mapping[str, Approval]
    """By the ids under which they are answered."""


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The run has ended: with a result, or, which is a fault of this library or its host, with an exception."""

    result: Result[Any] | Exception


News: TypeAlias = ProgressReport | ClientQuestions | CallEnd


class TooManyCalls(Exception):
    """There are as many calls under way as there may be."""


@dataclass(slots=True, kw_only=True, eq=False)
class ServedCall:
    """One call: its run, and what the client has not heard of it yet."""

    tool_name: str
    arguments: JsonObject
    """The arguments as the client gave them."""
    abort: Abort = field(default_factory=Abort)
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    """What a client must show to go on with this call. Nobody can guess it."""
    _notes: deque[ProgressReport] = field(default_factory=lambda: deque[ProgressReport](maxlen=_NOTES_KEPT))
    _n_notes: int = 0
    _approvals: dict[str, Approval] = field(default_factory=dict[str, Approval])
    """All that was asked, by id."""
    _told: frozenset[str] = frozenset()
    """The questions that the client has been given in this request."""
    _ended: CallEnd | None = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _call_off: Callable[[], None] | None = None
    """Calls off the timer of a call that waits for its client."""
    questions: PendingQuestions[ServedCall] = field(init=False)

    def __post_init__(self) -> None:
        self.questions = PendingQuestions(self)

    @property
    def is_heard(self) -> bool:
        """True: the client may answer."""
        return True

    def show(self, event: object) -> None:
        """Take note that something is asked, or was answered."""
        self._news.set()

    def hear(self, event: events.Event) -> None:
        """Make a note of an event that a person would want to know of."""
        text = known_secrets.mark(_note(event))
        if text:
            self._n_notes += 1
            self._notes.append(ProgressReport(self._n_notes, text))
            self._news.set()

    async def ask(self, approval: Approval) -> Decision:
        """Put a question to the client, and wait for its answer."""
        return await self.questions.approve(approval, opened=lambda id: self._approvals.update({id: approval}))

    def end(self, result: Result[Any] | Exception) -> None:
        self._ended = CallEnd(result)
        self._news.set()

    async def news(self) -> News:
        """Wait for what comes next. Notes first, then questions that were not told yet, then the end."""
        while True:
            if self._notes:
                return self._notes.popleft()
            if self._ended is not None:
                return self._ended
            unanswered = {id: self._approvals[id] for id in self.questions.open}
            if unanswered.keys() - self._told:
                self._told = frozenset(unanswered)
                return ClientQuestions(unanswered)
            self._news.clear()
            await self._news.wait()

    def wait(self, seconds: float, give_up: Callable[[], None]) -> None:
        """Call `give_up` when the client has not come back by then."""
        self._call_off = asyncio.get_running_loop().call_later(seconds, give_up).cancel

    def go_on(self) -> None:
        """Take note that the client is back: what it left open is told again."""
        if self._call_off is not None:
            self._call_off()
            self._call_off = None
        self._told = frozenset()


def _note(event: events.Event) -> str:
    """Return the progress report for an event; empty for most."""
    match event:
        case events.IterationStarted(path=path, attempt=attempt, iteration=iteration):
            text = f"iteration {iteration}" if attempt == 1 else f"attempt {attempt}, iteration {iteration}"
        case events.ToolCalled(path=path, kind="tool", tool_name=text):
            pass
        case events.ToolProgress(path=path, tool_name=name, message=message):
            text = f"{name}: {message}"
        case events.ModelRetried(path=path, kind=kind, delay_s=delay_s):
            text = f"{kind}, again in {delay_s:.1f} s"
        case events.ValidationFailed(path=path, attempt=attempt):
            text = f"attempt {attempt} was rejected"
        case _:
            return ""
    return f"{' > '.join(path[1:])}: {text}" if len(path) > 1 else text  # the agent that was called needs no name


class CallRegistry:
    """All calls under way. Leaving the block aborts them and waits for their ends."""

    def __init__(
        self, *, abort: Abort | None = None, max_calls: int = MAX_CALLS, patience_s: float = PATIENCE_S
    ) -> None:
        """`abort` ends every run."""
        self._abort = abort
        self._max_calls = max_calls
        self._patience_s = patience_s
        self._group = asyncio.TaskGroup()
        self._under_way: set[ServedCall] = set()
        self._waiting: dict[str, ServedCall] = {}

    async def __aenter__(self) -> CallRegistry:
        await self._group.__aenter__()
        self._unsubscribe: Callable[[], None] = lambda: None
        if (abort := self._abort) is not None:
            self._unsubscribe = abort.subscribe(lambda: self._end_all(abort.reason or ""))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unsubscribe()
        self._end_all("the server is closing")
        await self._group.__aexit__(None, None, None)  # it would wrap the error, which is not of its tasks

    def _end_all(self, reason: str) -> None:
        """End every run; each returns what it has."""
        for call in [*self._under_way, *self._waiting.values()]:
            call.go_on()
            call.abort.abort(reason)
        self._waiting.clear()

    def start(
        self,
        agent: Agent[Any, Any, Any],
        value: object,
        call: ServedCall,
        runtime: Runtime,
        *,
        on_event: events.Listener | None,
    ) -> None:
        """Start the run of a call, in a task of its own with a copy of the caller's context.

        Raises:
            TooManyCalls: there are too many under way.
        """
        if len(self._under_way | {*self._waiting.values()}) >= self._max_calls:
            calls = "1 call is" if self._max_calls == 1 else f"{self._max_calls} calls are"
            raise TooManyCalls(f"{calls} under way, and no more are taken.")
        self._under_way.add(call)
        self._group.create_task(
            self._run(run(agent, value, on_event=on_event, abort=call.abort, runtime=runtime), call)
        )

    async def _run(self, running: Coroutine[Any, Any, Result[Any]], call: ServedCall) -> None:
        try:
            call.end(await running)
        except Exception as error:  # noqa: BLE001 - one broken run must not end the others: its client is told
            call.end(error)
        finally:
            self._under_way.discard(call)

    def wait(self, call: ServedCall) -> None:
        """Keep a call until its client comes back with the answers, or for as long as patience lasts."""

        def give_up() -> None:
            self._waiting.pop(call.token, None)
            call.abort.abort(f"the client did not answer within {self._patience_s:g} s")

        self._waiting[call.token] = call
        call.wait(self._patience_s, give_up)

    def go_on(self, token: str, tool_name: str, arguments: JsonObject) -> ServedCall | None:
        """Return the call that waits for this client; None if there is none, or it was another."""
        call = self._waiting.get(token)
        if call is None or (call.tool_name, call.arguments) != (tool_name, arguments):
            return None
        del self._waiting[token]
        call.go_on()
        return call


AgentServer: TypeAlias = Server[CallRegistry]
"""A server of the package mcp, as `create_mcp_server` makes it. You may serve it in any way that the package offers."""
Context: TypeAlias = ServerRequestContext[CallRegistry, Any]


@refuse_old_arguments
def create_mcp_server(
    *agents: Agent[Any, Any, Any],
    runtime: Runtime | None = None,
    on_event: Listener | None = None,
    abort: Abort | None = None,
    max_calls: int = MAX_CALLS,
    patience_s: float = PATIENCE_S,
) -> AgentServer:
    """Return an MCP server with a tool for each agent.

    `runtime` surrounds every run, so all runs share its budget. `on_event` gets the events of all runs. `abort` ends
    all runs. `runtime.approver` answers what a gate asks; without it, the client does, if it can be asked; otherwise
    the call is denied. `patience_s` is how many seconds a run waits for the client's answer.

    Raises:
        DefinitionError: there is no agent, two have one name, or the runtime has a journal; it lists every problem.
    """
    surroundings = runtime or DEFAULT_RUNTIME
    problems = served_problems(agents, surroundings, hint="Pass agent.with_deps(…).")
    if problems:
        raise DefinitionError("The MCP server", problems)
    serving = _Serving({agent.name: served_tool(agent) for agent in agents}, surroundings, on_event)

    @asynccontextmanager
    async def lifespan(_: AgentServer) -> AsyncGenerator[CallRegistry]:
        async with AsyncExitStack() as stack:
            await _open_models(stack, agents, surroundings)
            yield await stack.enter_async_context(CallRegistry(abort=abort, max_calls=max_calls, patience_s=patience_s))

    return Server(
        agents[0].name if len(agents) == 1 else "journeyman",
        version=package_version(),
        lifespan=lifespan,
        get_tool_input_schema=serving.input_schema,
        on_list_tools=serving.list_tools,
        on_call_tool=serving.call_tool,
    )


async def _open_models(stack: AsyncExitStack, agents: Sequence[Agent[Any, Any, Any]], runtime: Runtime) -> None:
    """Keep the connections of the models from run to run. A model that is not available fails the run that needs it."""
    for agent in agents:
        model = runtime.model or agent.model
        try:
            await stack.enter_async_context(opened(connect(model) if isinstance(model, str) else model))
        except ModelUnavailable:
            continue


@dataclass(frozen=True, slots=True)
class _Serving:
    """Answers the requests of clients."""

    tools: dict[str, ServedTool]
    runtime: Runtime
    on_event: Listener | None

    def input_schema(self, name: str) -> dict[str, Any] | None:
        return self.tools[name].definition.input_schema if name in self.tools else None

    async def list_tools(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool.definition for tool in self.tools.values()])

    async def call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        tool = self.tools.get(params.name)
        if tool is None:
            known = ", ".join(self.tools)
            raise MCPError(
                code=types.INVALID_PARAMS, message=f"No agent is called {params.name!r}. There are: {known}."
            )
        if params.request_state is not None:
            return await self._go_on(context, params, tool)
        try:
            value = await tool.parse(params.arguments or {})
            call = self._start_call(context, params, tool, value)
        except InvalidArguments as error:
            return invalid(error)
        except TooManyCalls as error:
            return refusal("TOO_MANY_CALLS", str(error), "Call again when one has ended.")
        return await _follow(context, tool, call)

    def _start_call(
        self, context: Context, params: types.CallToolRequestParams, tool: ServedTool, value: object
    ) -> ServedCall:
        call = ServedCall(tool_name=params.name, arguments=params.arguments or {})
        runtime = self.runtime
        if runtime.approver is None:
            runtime = replace(runtime, approver=_approver(context, call))

        def hear(event: Event) -> None:
            call.hear(event)
            if self.on_event is not None:
                self.on_event(event)

        context.lifespan_context.start(tool.agent, value, call, runtime, on_event=hear)
        return call

    async def _go_on(
        self, context: Context, params: types.CallToolRequestParams, tool: ServedTool
    ) -> types.CallToolResult | types.InputRequiredResult:
        calls = context.lifespan_context
        call = calls.go_on(params.request_state or "", params.name, params.arguments or {})
        if call is None:
            return refusal(
                "NO_SUCH_CALL", "No call waits for this answer: it has ended, or was given up.", "Call again."
            )
        for id, response in (params.input_responses or {}).items():
            with suppress(KeyError):  # one that is no longer open, because its time was up, is left alone
                call.questions.answer(id, _decision(response), who="the client")
        return await _follow(context, tool, call)


async def _follow(
    context: Context, tool: ServedTool, call: ServedCall
) -> types.CallToolResult | types.InputRequiredResult:
    """Follow a run up to its end, or to a question. A client that leaves before that ends it."""
    is_settled = False
    try:
        while True:
            match await call.news():
                case ProgressReport(number, text):
                    await context.session.report_progress(number, message=text)
                case ClientQuestions(questions):
                    requests: types.InputRequests = {
                        id: types.ElicitRequest(
                            params=types.ElicitRequestFormParams(
                                message=_question_text(approval), requested_schema=_FORM
                            )
                        )
                        for id, approval in questions.items()
                    }
                    context.lifespan_context.wait(call)
                    is_settled = True
                    return types.InputRequiredResult(input_requests=requests, request_state=call.token)
                case CallEnd(result):
                    is_settled = True
                    return await do_aside(getattr(result, "output", None), lambda _: tool.answer(result))
    finally:
        if not is_settled:
            call.abort.abort("the client cancelled the call")


def _approver(context: Context, call: ServedCall) -> Approver | None:
    """Return the approver that puts a gate's question to the client; None where the client cannot be asked."""
    session = context.session
    capabilities = session.client_capabilities
    forms = None if capabilities is None else capabilities.elicitation
    # Those who show forms, but are from before there were other modes, do not say so.
    if forms is None or (forms.form is None and forms.url is not None):
        return None
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return call.ask
    if not session.can_send_request:
        return None

    async def ask(approval: Approval) -> Decision:
        return _decision(await session.elicit_form(_question_text(approval), _FORM, context.request_id))

    return ask


def _question_text(approval: Approval) -> str:
    request = approval.request
    arguments = with_its_end(visible_json(request.input_json), _ARGUMENTS_SHOWN)
    return f"{' > '.join(request.path)} wants to call {request.tool_name} with {arguments}\n\n{approval.question}"


def _decision(response: types.InputResponse) -> Decision:
    """Return the decision in a client's answer. Anything but a clear yes is a no."""
    if not isinstance(response, types.ElicitResult) or response.action != "accept":
        return Deny("the user declined")
    content = response.content or {}
    if content.get("decision") == "allow":
        return Allow()
    reason = content.get("reason")
    return Deny(f"the user denied it: {reason}" if reason else "the user denied it")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServedTool:
    """An agent, as clients see it."""

    agent: Agent[Any, Any, Any]
    definition: types.Tool
    _parse: Callable[[str | bytes], object]

    async def parse(self, arguments: Mapping[str, Any]) -> object:
        """Return the agent's input.

        Raises:
            InvalidArguments: the arguments do not fit; it lists every issue.
        """
        return await do_aside(to_json(arguments), self._parse)

    def answer(self, result: Result[Any] | Exception) -> types.CallToolResult:
        """Return the result of the call for the client, from the result of the run."""
        match result:
            case Success():
                return self._success(result)
            case Failure():
                return _failure_result(result.error, result.metadata.usage)
            case Exception():
                _log.error("A run of %s broke: %s", self.agent.name, name_and_words(result), exc_info=result)
                return refusal("INTERNAL_ERROR", "The run broke.", "The server's log says why.")

    def _success(self, success: Success[Any]) -> types.CallToolResult:
        schema = self.agent.plan.output
        if schema is None:
            return _tool_result(str(success.output), None, success.metadata.usage)
        try:
            value: Any = from_json(schema.dump(success.output))
        except ValueError:
            message = f"The output is not JSON: {success.output!r:.200}."
            return refusal("INTERNAL_ERROR", message, "Give the output type a serializer.", success.metadata.usage)
        text = value if isinstance(value, str) else to_json(value).decode()
        return _tool_result(text, {_OUTPUT: value} if schema.is_wrapped else value, success.metadata.usage)


def served_tool(agent: Agent[Any, Any, Any]) -> ServedTool:
    """Return the agent as a tool."""
    schema, parse = _input_form(agent)
    definition = types.Tool(
        name=agent.name,
        description=agent.description.strip() or f"Give the agent {agent.name} a task.",
        input_schema=schema,
        output_schema=None if agent.plan.output is None else _output_form(agent.plan.output),
    )
    return ServedTool(agent=agent, definition=definition, _parse=parse)


def _input_form(agent: Agent[Any, Any, Any]) -> tuple[JsonObject, Callable[[str | bytes], object]]:
    plan = agent.plan.input
    if not plan.is_wrapped and agent.input is not str:
        return plan.input_schema, plan.parse_checked
    what = "The task, in words." if agent.input is str else "What to work on."
    fields = Fields([Parameter(name=_INPUT, annotation=agent.input, description=what)])

    def parse(given: str | bytes) -> CheckedValue:
        return CheckedValue(plan, fields.parse(given, f"arguments for {agent.name!r}")[_INPUT])

    return fields.input_schema, parse


def _output_form(schema: OutputSchema[Any]) -> JsonObject | None:
    dumped = schema.dumped_schema()
    if dumped is None or not schema.is_wrapped:
        return dumped
    definitions = dumped.pop("$defs", None)
    wrapper: JsonObject = {"type": "object", "properties": {_OUTPUT: dumped}, "required": [_OUTPUT]}
    return wrapper if definitions is None else {**wrapper, "$defs": definitions}


def invalid(error: InvalidArguments) -> types.CallToolResult:
    """Return the answer to arguments that do not fit. No run was started."""
    return _failure_result(ErrorInfo(InvalidInputContext(issues=error.issues)), Usage())


def refusal(code: str, message: str, hint: str, usage: Usage | None = None) -> types.CallToolResult:
    """Return an answer that says why there is no result."""
    return _tool_result(
        join_sentences(f"{code}: {message}", hint),
        None,
        usage,
        failure={"code": code, "message": message, "hint": hint},
    )


def _failure_result(ending: ErrorInfo, usage: Usage | None) -> types.CallToolResult:
    facts = {
        "code": str(ending.code),
        "category": ending.category,
        "phase": ending.phase,
        "message": ending.message,
        "hint": ending.hint,
    }
    return _tool_result(join_sentences(str(ending), ending.hint), None, usage, failure=facts)


def _tool_result(
    text: str, structured: object, usage: Usage | None, *, failure: dict[str, str] | None = None
) -> types.CallToolResult:
    # A failure is told without what looks like a secret, too: it may quote anything.
    clear = known_secrets.mark if failure is None else without_secrets
    meta: dict[str, Any] = {} if failure is None else {FAILURE: {name: clear(each) for name, each in failure.items()}}
    if usage is not None:
        meta[USAGE] = {**asdict(usage), "total_tokens": usage.total_tokens}
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=clear(text))],
        structured_content=without_known(structured),
        is_error=failure is not None,
        _meta=meta,
    )
