"""One MCP server: started, listed, called, started again when it has died, and ended.

The tools are those of the first list. If the server changes a tool later, this is found before the next call, and the
tool is not called. A call is never repeated, because nobody knows whether a call that broke off took effect. While it
runs, a server is in the hands of one task, which starts it, holds it and ends it, because the SDK wants what a task has
opened to be closed by that task. Calls come from any task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from contextvars import Context
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

from pydantic import BaseModel, TypeAdapter

from journeyman.cancellation import flatten_error, wait_until_ended
from journeyman.errors import McpUnavailable, Rejected, count
from journeyman.inbox.inbox import current_conversation
from journeyman.mcp.elicitation import CallQuestions
from journeyman.mcp.oauth import SignIn
from journeyman.mcp.pins import Definition, Offer, changes
from journeyman.mcp.sampling import CallSampling
from journeyman.mcp.servers import Http, Server, Stdio
from journeyman.mcp.transports import HttpTransport, StdioTransport
from journeyman.texts import shorten_line
from journeyman.tools.redaction import scrub_secrets
from journeyman.types import Text, ToolResult

if TYPE_CHECKING:
    from mcp.client import Client, ClientRequestContext, IncomingMessage
    from mcp.shared.exceptions import MCPError
    from mcp.types import (
        CallToolResult,
        CreateMessageRequestParams,
        CreateMessageResult,
        ElicitRequestParams,
        ElicitResult,
        ErrorData,
        InputRequiredResult,
        InputResponses,
        Request,
        ServerCapabilities,
        Tool,
    )


MAX_TOOLS: Final = 1_000
MAX_DESCRIPTION_CHARS: Final = 200_000
"""The longest description of a tool that is compared with what was pinned; a model reads less of it."""
MAX_PAGES: Final = 100
MAX_ROUNDS: Final = 20
"""How often a server may want to know more before it answers one request."""
MAX_PROGRESS: Final = 1_000
"""How often a server is heard on the progress of one call."""
_CLOSED: Final = -32000
"""The SDK's code for a connection that has ended."""
_VISIT_FIRST: Final = -32042
"""The protocol's code for a call that needs the user to open addresses first."""
_CLOSE_S: Final = 10.0
_FIRST: Final = asyncio.FIRST_COMPLETED
_LISTEN_S: Final = 5.0
_SETTLE_S: Final = 0.5
_LONGEST_WAIT_S: Final = 30.0
_SHOWN: Final = 1_500
PAUSE_S: Final = 0.25
"""How long a server that only wants to be asked again is given."""
Received = TypeVar("Received", bound=BaseModel)
Making: TypeAlias = "Callable[[InputResponses | None, str | None], Request[Any, Any]]"
"""Makes a request of what the server wanted to know: the answers to that, and its note to itself."""
Progress: TypeAlias = Callable[[str, float | None], None]
"""Told what the server says of how far a call is, and from 0 to 1 how far that is."""


class ServerConnection:
    """One server, under the name it has here."""

    def __init__(self, name: str, server: Server, *, start_timeout_s: float, call_timeout_s: float) -> None:
        self.name: Final = name
        self._server: Final = server
        self._start_timeout_s: Final = start_timeout_s
        self.call_timeout_s: Final = call_timeout_s
        self._running: _RunningServer | None = None
        self._starting: _RunningServer | None = None
        self._is_closed = False
        self.has_resources = False
        """Whether there are any, as the server said at first."""
        self._offer: Offer | None = None
        """What the server offered at first."""
        self._changed: dict[str, Sequence[str]] = {}
        """The tools that are no longer what they were, each with the fields that changed."""
        self._n_failures = 0
        """How often it has failed in a row."""
        self._may_start_at = 0.0
        """When it may be started again, by the event loop's clock."""
        self._lock: Final = asyncio.Lock()
        self._sign_in: Final = SignIn(server if isinstance(server, Http) else Http(""))
        self._asking: Final[list[CallQuestions]] = []
        """What may be asked of users, for each request under way, oldest first."""
        self._sampling: Final[list[CallSampling]] = []
        """What may be asked of models, for each call under way, oldest first."""

    async def open(self) -> Offer:
        """Start the server, and return what it offers.

        Raises:
            McpUnavailable: it does not start, answer or list its tools.
        """
        running = await self._start()
        self._offer = await self._list(running)
        self._sign_in.is_opening = False
        self.has_resources = running.client.server_capabilities.resources is not None
        return self._offer

    async def close(self) -> None:
        """End the server, for good."""
        self._is_closed = True
        for running in (self._starting, self._running):
            if running is not None:
                await running.end(at_once=running is self._starting)

    async def call(
        self, tool: str, arguments: dict[str, object], progress: Progress, path: tuple[str, ...] = ()
    ) -> CallToolResult:
        """Call a tool, for the run of this path. Cancelled, the call is cancelled at the server, too, which goes on to
        serve others.

        Raises:
            Rejected: there is no answer, and why, for the model to read.
        """
        from mcp.types import CallToolRequest, CallToolRequestParams, CallToolResult

        def make(responses: InputResponses | None, state: str | None) -> CallToolRequest:
            given = cast("dict[str, Any]", arguments)
            params = CallToolRequestParams(name=tool, arguments=given, input_responses=responses, request_state=state)
            return CallToolRequest(params=params)

        running = await self._ready()
        if tool in self._changed:
            raise Rejected(
                f"Error: not called: the MCP server {self.name!r} has changed this tool"
                f" ({', '.join(self._changed[tool])}) since it was listed. Go on without it; somebody has to look at"
                " it and pin it (journeyman mcp pin)."
            )
        return await self._request(running, make, CallToolResult, listener=_Listener(progress), path=path)

    async def request(self, make: Making, kind: type[Received], path: tuple[str, ...] = ()) -> Received:
        """Send any other request. Cancelled, it is cancelled at the server, too.

        Raises:
            Rejected: there is no answer, and why.
        """
        return await self._request(await self._ready(), make, kind, path=path)

    async def capabilities(self) -> ServerCapabilities:
        """Return what the server can do.

        Raises:
            Rejected: it does not run.
        """
        return (await self._ready()).client.server_capabilities

    async def _request(
        self,
        running: _RunningServer,
        make: Making,
        kind: type[Received],
        *,
        listener: _Listener | None = None,
        path: tuple[str, ...],
    ) -> Received:
        """Send a request, and answer what the server asks the user meanwhile, or before it goes on."""
        from mcp.types import InputRequiredResult

        questions = CallQuestions(self.name, current_conversation.get().asker, path, self._scrub)
        sampling = CallSampling(self.name, self._server.sampling, path, self._scrub)
        self._asking.append(questions)
        self._sampling.append(sampling)
        responses: InputResponses | None = None
        state: str | None = None
        try:
            for _ in range(MAX_ROUNDS):
                # Not by `call_tool`: that also checks answers against schemas of the server's making, which may take
                # forever.
                session = running.client.session
                sending = session.send_request(make(responses, state), _answers(kind), progress_callback=listener)
                answer = await self._send(running, sending, questions)
                if isinstance(answer, kind):
                    self._n_failures = 0
                    return answer
                assert isinstance(answer, InputRequiredResult)
                responses = await self._answer_input_requests(answer, questions, sampling)
                state = answer.request_state
        finally:
            self._asking.remove(questions)
            self._sampling.remove(sampling)
            questions.answers.close()
            sampling.answers.close()
        raise self._make_rejection(f"it asked for more input {MAX_ROUNDS} times, and was not asked again")

    async def _send(
        self, running: _RunningServer, sending: Coroutine[Any, Any, object], questions: CallQuestions
    ) -> object:
        from mcp.shared.exceptions import MCPError

        try:
            # In a task of its own, so that a cancellation of ours does not meet the SDK's scopes.
            return await asyncio.create_task(sending)
        except MCPError as error:
            if error.code == _VISIT_FIRST:
                raise await self._ask_to_visit(error, questions) from None
            raise await self._explain_failure(running, error) from None
        except ValueError as error:
            raise self._make_rejection(f"its answer is not what the protocol says: {_first_line(error)}") from None

    async def _answer_input_requests(
        self, wanted: InputRequiredResult, questions: CallQuestions, sampling: CallSampling
    ) -> InputResponses | None:
        """Return the answers of the user and of the model to what a server of the newer kind asks before it goes on."""
        from mcp.types import CreateMessageRequest, ElicitRequest, ErrorData

        if not wanted.input_requests:
            await asyncio.sleep(PAUSE_S)  # it only wants to be asked again
            return None
        responses: InputResponses = {}
        for key, each in wanted.input_requests.items():
            if isinstance(each, ElicitRequest):
                answer = await questions.answer(each.params)
            elif isinstance(each, CreateMessageRequest):
                answer = await sampling.answer(each.params)
            else:
                raise self._make_rejection("it asks for folders, which it does not get here")
            if isinstance(answer, ErrorData):
                raise self._make_rejection(f"it asks for what cannot be asked: {answer.message}")
            responses[key] = answer
        return responses

    async def _ask_to_visit(self, error: MCPError, questions: CallQuestions) -> Rejected:
        """Ask the user to open what has to be opened before a call, and return what to tell the model of that."""
        from mcp.types import ElicitationRequiredErrorData, ElicitResult

        try:
            needed = ElicitationRequiredErrorData.model_validate(error.data).elicitations
        except ValueError:
            return self._make_rejection(error.message)
        for each in needed:
            answer = await questions.answer(each)
            if not isinstance(answer, ElicitResult) or answer.action != "accept":
                return self._make_rejection(
                    f"{error.message}: the user did not agree to open an address that it needs opened"
                )
        return self._make_rejection(
            f"{error.message}: the user opens an address for that. Call again when they have done so"
        )

    async def elicit(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        """Answer a server of the older kind, which asks while a request is under way, and does not say for which."""
        from mcp.types import ElicitResult

        if len({id(each.asker) for each in self._asking}) != 1:
            return ElicitResult(action="decline")  # nobody has called it, or nobody knows whose question it is
        return await self._asking[-1].answer(params)

    async def sample(
        self, context: ClientRequestContext, params: CreateMessageRequestParams
    ) -> CreateMessageResult | ErrorData:
        """Ask the model for a server of the older kind, which does not say for which of its calls."""
        from mcp.types import INVALID_REQUEST, ErrorData

        if len({id(each.run) for each in self._sampling}) != 1:
            return ErrorData(code=INVALID_REQUEST, message="The model was not asked: nobody knows for which run.")
        return await self._sampling[-1].answer(params)

    async def _explain_failure(self, running: _RunningServer, error: MCPError) -> Rejected:
        if error.code == _CLOSED:
            await asyncio.wait({running.task}, timeout=_SETTLE_S)  # the end of a server is known a moment later
        if not running.is_finished:
            return self._make_rejection(running.transport.explain_error(error.message))
        await self._note_failure(running)
        why = self._fit(running.transport.trouble)
        return self._make_rejection(
            f"it failed during the call: {why}. Whether the call took effect is not known. The next call restarts it"
        )

    def _make_rejection(self, why: str) -> Rejected:
        return Rejected(f"Error: the MCP server {self.name!r}: {self._fit(why)}.")

    def _fit(self, text: str) -> str:
        """Return a text of the server's as it may be shown: not too long, and without secrets."""
        return self._scrub(shorten_line(text, _SHOWN))

    def _scrub(self, text: str) -> str:
        return scrub_secrets(text, (*self._server.secrets, *self._sign_in.secrets))

    async def _ready(self) -> _RunningServer:
        """Return the server as it runs; start it again if it does not, and look what it offers if that may differ."""
        async with self._lock:
            return await self._up_to_date()

    async def _up_to_date(self) -> _RunningServer:
        running = self._running
        if self._is_closed:
            raise Rejected(f"Error: not called: the MCP server {self.name!r} was ended with the block that started it.")
        if running is not None and running.is_finished:
            await self._note_failure(running)
        if self._running is not None and not self._running.is_stale:
            return self._running
        try:
            running = self._running or await self._restart()
            self._compare(await self._list(running))
        except McpUnavailable as error:
            raise Rejected(
                f"Error: not called: {error.server!r} is an MCP server that is down: {error.reason}."
            ) from None
        return running

    async def _restart(self) -> _RunningServer:
        left = self._may_start_at - asyncio.get_running_loop().time()
        if left > 0:
            times = count(self._n_failures, "time")
            reason = f"it failed {times} in a row, and is started again in {left:.1f} s at the earliest"
            raise McpUnavailable(self.name, reason, hint="Wait.")
        return await self._start()

    async def _note_failure(self, running: _RunningServer) -> None:
        """Put away a server that has finished. The first time in a row it may be started again at once."""
        if self._running is running:
            self._running = None
            self._put_off()
        await running.end()

    def _put_off(self) -> None:
        self._n_failures += 1
        delay = 0.0 if self._n_failures == 1 else min(_LONGEST_WAIT_S, 0.25 * 2 ** (self._n_failures - 1))
        self._may_start_at = asyncio.get_running_loop().time() + delay

    async def _start(self) -> _RunningServer:
        await asyncio.to_thread(_sdk)  # which does not keep others waiting
        if self._is_closed:
            raise self._unavailable("it was ended with the block that started it")
        self._starting = running = _RunningServer(self._server, self._sign_in, self, self.call_timeout_s)
        waiting = {running.task, running.started}
        try:
            while not (await asyncio.wait(waiting, timeout=self._start_timeout_s, return_when=_FIRST))[0]:
                if not self._sign_in.is_asking:  # a person has a time of their own
                    break
        except asyncio.CancelledError:
            await running.end(at_once=True)
            raise
        finally:
            self._starting = None
        if running.is_finished or not running.started.done():
            await self._give_up(running)
            raise self._unavailable(running.transport.trouble, running.transport)
        self._running = running
        return running

    async def _give_up(self, running: _RunningServer) -> None:
        self._running = None
        self._put_off()
        await running.end(at_once=not running.is_finished)

    def _unavailable(self, reason: str, transport: StdioTransport | HttpTransport | None = None) -> McpUnavailable:
        server, hint, needs = self._server, "Try the command by hand.", list[str]()
        if isinstance(server, Http):
            signs = ", or sign in: Http(…, auth=OAuth())" if server.auth is None else ""
            hint = f"Check the address and the headers{signs}."
        elif isinstance(transport, StdioTransport) and transport.box.borders:
            needs = transport.find_needs()
            given = needs or "[…]"
            hint = f"{hint} In its box {transport.box.borders}; needs={given} would give it more, sandbox=None all."
        hint = f"{hint} If it only is slow, give it more time: start_timeout_s (now {self._start_timeout_s:g})."
        return McpUnavailable(self.name, self._fit(reason), hint=hint, needs=needs)

    def explain_refusals(self, result: ToolResult) -> ToolResult:
        """Return an error of a server together with the needs that its box has refused meanwhile, if there are any."""
        needs = self._running.transport.find_needs(result.text) if result.is_error and self._running else []
        if not needs:
            return result
        told = Text(f"[Its sandbox has refused what it was not given: needs={needs}. Whoever runs this can add that.]")
        parts = (Text(result.content),) if isinstance(result.content, str) else result.content
        return replace(result, content=(*parts, told))

    async def _list(self, running: _RunningServer) -> Offer:
        from mcp.shared.exceptions import MCPError

        running.is_stale = False
        try:
            async with asyncio.timeout(self._start_timeout_s):
                tools = await self._pages(running.client)
        except asyncio.CancelledError:
            running.is_stale = True
            raise
        except TimeoutError:
            await self._give_up(running)
            raise self._unavailable("it did not list its tools in time") from None
        except MCPError as error:
            was_finished = running.is_finished
            await self._give_up(running)
            reason = running.transport.trouble if was_finished else f"it does not list its tools: {error.message}"
            raise self._unavailable(reason, running.transport) from None
        except ValueError as error:
            await self._give_up(running)
            raise self._unavailable(f"its list of tools is not what the protocol says: {_first_line(error)}") from None
        about = running.client.server_info
        identity = {**self._server.identity, "name": "" if about is None else about.name}
        return Offer(server=self.name, identity=identity, tools=tools)

    async def _pages(self, client: Client) -> list[Definition]:
        tools: dict[str, Definition] = {}
        cursor: str | None = None
        if client.server_capabilities.tools is None:
            return []
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            for tool in page.tools:
                if tool.name in tools:
                    raise ValueError(f"it lists the tool {tool.name!r} twice")
                if (n_chars := len(tool.title or "") + len(tool.description or "")) > MAX_DESCRIPTION_CHARS:
                    most = f"of at most {MAX_DESCRIPTION_CHARS:,}"
                    raise ValueError(f"it describes the tool {tool.name[:80]!r} with {n_chars:,} characters, {most}")
                tools[tool.name] = _definition_of_tool(tool)
                await asyncio.sleep(0)  # there may be a thousand, and others have their turn
            cursor = page.next_cursor
            if cursor is None and len(tools) <= MAX_TOOLS:
                return list(tools.values())
            if len(tools) > MAX_TOOLS:
                break
        raise ValueError(f"it has more than {MAX_TOOLS:,} tools or {MAX_PAGES} pages of them")

    def _compare(self, offer: Offer) -> None:
        """Note the tools that differ from what the server first offered, and the fields that do."""
        first = self._offer or offer
        now = {each.name: each.digests() for each in offer.tools}
        self._changed = {
            each.name: changed
            for each in first.tools
            if (changed := changes(each.digests(), now[each.name]) if each.name in now else ["it is gone"])
        }


class _Listener:
    """A listener that passes on the progress of one call, as the server tells it, but not forever."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._n_heard = 0

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        self._n_heard += 1
        if self._n_heard <= MAX_PROGRESS:
            fraction = min(1.0, max(0.0, progress / total)) if total else None
            of = f" of {total:g}" if total else ""
            self._progress(shorten_line(message or f"{progress:g}{of}", _SHOWN), fraction)


def _definition_of_tool(tool: Tool) -> Definition:
    facts = tool.model_dump(mode="json", by_alias=True, exclude_none=True)
    return Definition(
        name=tool.name,
        title=tool.title,
        description=tool.description or "",
        input_schema=facts["inputSchema"],
        output_schema=facts.get("outputSchema"),
        annotations=facts.get("annotations"),
    )


@cache
def _answers(kind: type[BaseModel]) -> TypeAdapter[Any]:
    from mcp.types import InputRequiredResult

    return TypeAdapter[Any](cast("Any", kind | InputRequiredResult))


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return shorten_line(" ".join(lines[:2]), 300)


def _sdk() -> type[Client]:
    """Import the SDK, which takes a second; and keep its log, which repeats what servers send, from the screen."""
    from mcp.client import Client

    log = logging.getLogger("mcp")
    if not log.handlers:
        log.addHandler(logging.NullHandler())
    return Client


class _RunningServer:
    """A server that is started as this is made, in the hands of one task."""

    def __init__(self, server: Server, sign_in: SignIn, answers: ServerConnection, timeout_s: float) -> None:
        """`answers` answers what the server asks. `timeout_s`: how long it may be silent in the middle of
        an answer, in seconds."""
        self._may_sample: Final = server.sampling is not None
        self._answers: Final = answers
        self.transport: Final = (
            StdioTransport(server) if isinstance(server, Stdio) else HttpTransport(server, sign_in, timeout_s=timeout_s)
        )
        self.started: Final[asyncio.Future[Client]] = asyncio.get_running_loop().create_future()
        self.is_stale = True
        """True when its tools may not be those that were listed."""
        # With a context of its own: it outlives the run that happens to start it.
        self.task: Final = asyncio.create_task(self._hold(), context=Context())

    @property
    def is_finished(self) -> bool:
        return self.transport.finished.is_set() or self.task.done()

    @property
    def client(self) -> Client:
        return self.started.result()

    async def _hold(self) -> None:
        """Start the server, hold it until it has finished, and end it."""
        from mcp.types import Implementation

        about = Implementation(name="journeyman", version=version("journeyman"))
        client = _sdk()(
            self.transport,
            cache=None,
            client_info=about,
            message_handler=self._hear,
            elicitation_callback=self._answers.elicit,
            sampling_callback=self._answers.sample if self._may_sample else None,
        )
        try:
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(client)
                await self._subscribe(client, stack)
                self.started.set_result(client)
                await self.transport.finished.wait()
        except Exception as error:  # noqa: BLE001 - of the SDK, its HTTP client and the system: told where one waits
            for each in flatten_error(error):
                self.transport.note(each)
        finally:
            self.transport.finished.set()

    async def _subscribe(self, client: Client, stack: AsyncExitStack) -> None:
        """Ask to be told of changes, where that has to be asked for."""
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
        from mcp.shared.exceptions import MCPError

        tools = client.server_capabilities.tools
        if tools is None or not tools.list_changed:
            return
        try:
            async with asyncio.timeout(_LISTEN_S):
                await stack.enter_async_context(client.listen(tools_list_changed=True))
        except (ListenNotSupportedError, SubscriptionLost, MCPError, TimeoutError):
            return  # an older server tells without being asked, and one that never tells changes nothing here

    async def _hear(self, message: IncomingMessage) -> None:
        from mcp.types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self.is_stale = True

    async def end(self, *, at_once: bool = False) -> None:
        """End the server, and let nobody interrupt that."""
        self.task.cancel() if at_once else self.transport.finished.set()
        await wait_until_ended(self.task, patience_s=_CLOSE_S)
