"""Agents behind HTTP: a JSON API with an OpenAPI document, server-sent events, and AG-UI.

`app` makes an ASGI application, to be run by any server or mounted in another application. Every refusal has the same
form, whatever the client has sent. What belongs to another owner does not exist for a client.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import signal
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any, Final, Protocol, TypeAlias, TypeVar, runtime_checkable

import orjson
from ag_ui.core.types import RunAgentInput
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from journeyman.agent import DEFAULT_RUNTIME, Agent, Runtime
from journeyman.cancellation import is_awaited
from journeyman.definition.foreign import refuse_old_arguments
from journeyman.definition.json_numbers import write_json
from journeyman.durable import Durable, PendingQuestion
from journeyman.durable.records import OVER, ListedRun, ListPlace
from journeyman.errors import DefinitionError, InvalidArguments, SessionInUse, StoreError
from journeyman.events import QuestionAsked
from journeyman.gate import DECISION_WORDS
from journeyman.loop.prepare import runtime_problems
from journeyman.serve import documents, openapi, refusals
from journeyman.serve.agui import Agui, Threads, failed_run
from journeyman.serve.bodies import (
    after_of,
    answer_of,
    answers_of,
    idempotency_key,
    input_of_body,
    is_id,
    parse_body,
    parse_object,
    results_of,
    run_input,
    seen_of,
    typed_input,
    with_tools,
)
from journeyman.serve.hosting import Deps, Hosting, OnDisconnect
from journeyman.serve.http_guard import Unwelcome, check_encoding, check_type, read_body
from journeyman.serve.live import Live, Past, ServeLimits
from journeyman.serve.openapi import LISTED, MOST, PLACE, Operation
from journeyman.serve.refusals import (
    RETRY_S,
    STORE_AWAY,
    Refusal,
    invalid_input,
    key_of,
    nothing,
    owner_key,
    served_problems,
)
from journeyman.serve.streams import EventStream, Plain, check_followers
from journeyman.session import TURN, turn_name
from journeyman.store.sessions import SessionHead
from journeyman.tools.external import external_question
from journeyman.tools.known_secrets import known_secrets
from journeyman.types import Message, adapter_of

_PLACE: Final = re.compile(PLACE)
D = TypeVar("D")

Authorize: TypeAlias = Callable[[Request], "str | Awaitable[str | None] | None"]
"""Returns the owner of a request; None refuses the request (401)."""

_log = logging.getLogger("journeyman")
_EVERYBODY: Final = "public"
"""The owner of everything when there is no `authorize`."""
_JSON: Final = "application/json"


@refuse_old_arguments
def create_app(
    agents: Sequence[Agent[Any, Any, Any]],
    *,
    store: Durable | str | None = None,
    deps: Deps | None = None,
    authorize: Authorize | None = None,
    runtime: Runtime | None = None,
    limits: ServeLimits | None = None,
    on_disconnect: OnDisconnect = "stop",
) -> AgentApp:
    """Return an ASGI application that serves agents: run it, or mount it.

    Args:
        agents: The agents, each under its name.
        store: Where runs and chats are kept: a path, a URL, or a `Durable` that stays open as long as the app. None: in
            memory, until `ServeLimits.kept_s` after their end.
        deps: Returns the deps that the agents use for an owner; it may be async. If it fails, the client is asked to
            come back.
        authorize: Returns the owner of a request, or None to refuse the request; it may be async. If you leave it out,
            everything belongs to everybody who can reach the server.
        runtime: What surrounds every run: its gate, its budget, its model.
        limits: What clients may use.
        on_disconnect: What becomes of a run without a store when the last client that follows it leaves. With a store,
            the run goes on.

    Raises:
        DefinitionError: there is no agent, two have one name, one lacks its deps, or the runtime has a journal; it
            lists every problem.
    """
    around = runtime if isinstance(runtime, Runtime) else DEFAULT_RUNTIME
    hint = "Pass deps=…, or agent.with_deps(…)."
    problems = [*runtime_problems(runtime), *served_problems(agents, around, deps=deps, hint=hint)]
    if problems:
        raise DefinitionError("The app", problems)
    named = {agent.name: agent for agent in agents}
    hosting = Hosting(
        named, store, deps=deps, runtime=around, limits=limits or ServeLimits(), on_disconnect=on_disconnect
    )
    return AgentApp(hosting, authorize)


_STOP_S: Final = 5.0
"""Within how many seconds runs end when uvicorn is told to stop; at a second signal, at once."""


class AgentApp:
    """An ASGI application that serves agents. `app` makes it.

    If you mount it, give its lifespan to the application around it: `FastAPI(lifespan=agents.lifespan)`. Otherwise it
    opens at the first request, and closes when the event loop ends.
    """

    def __init__(self, hosting: Hosting, authorize: Authorize | None) -> None:
        self._hosting: Final = hosting
        endpoints = _Endpoints(hosting)
        self.routes: Final = tuple((each.method, each.path) for each in OPERATIONS)
        """The method and the path of each route."""
        by_path: dict[str, dict[str, Operation]] = {}
        # First what begins a run: routes are tried one after the other.
        for each in sorted(OPERATIONS, key=lambda each: not each.path.endswith("/runs")):
            by_path.setdefault(each.path, {})[each.method] = each
        # One route for each path, so that a wrong method is told all that are there.
        routes = [
            Route(path, _Endpoint(hosting, authorize, endpoints, operations), methods=[*operations])
            for path, operations in by_path.items()
        ]
        self._router: Final = Router(routes=routes, lifespan=self.lifespan, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Without the layers of `Starlette`: each of them would take part in every event that is sent.
        try:
            await self._router({"app": self, **scope}, receive, send)
        except HTTPException as error:
            await http_error(error)(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self, around: object = None) -> AsyncGenerator[None]:
        """Keep the store and the models open. Leaving the block stops the runs that go on, or leaves them to another
        process."""
        async with self._hosting.lifespan():
            draining: list[asyncio.Task[None]] = []

            def drain() -> None:
                draining.append(asyncio.create_task(self.drain(0.0 if draining else _STOP_S)))

            try:
                with _uvicorn_stop_heard(drain):
                    yield
            finally:
                for task in draining:
                    task.cancel()
                if draining:
                    await asyncio.wait(draining)

    async def drain(self, grace_s: float) -> None:
        """Begin no more runs, and end within so many seconds; those that go on have most of them. `/ready` then says
        no (503)."""
        await self._hosting.drain(grace_s)


_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def _uvicorn_stop_heard(heed: Callable[[], None]) -> Generator[None]:
    """Call `heed` in the running event loop when uvicorn is told to stop while the block runs.

    It waits for open streams before it ends the lifespan, and streams of events wait for their runs. Other servers, and
    those outside of the main thread, are not heard: they have limits of their own, or whoever runs them calls `drain`.
    """
    loop = asyncio.get_running_loop()
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in _STOP_SIGNALS}
        owners = {number: type(getattr(handler, "__self__", None)).__module__ for number, handler in before.items()}
        before = {number: each for number, each in before.items() if owners[number].partition(".")[0] == "uvicorn"}

    def hear(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(heed)
        before[number](number, frame)

    for number in before:
        signal.signal(number, hear)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is hear:
                signal.signal(number, handler)


@dataclass(slots=True)
class ApiRequest:
    """One request, and whose it is."""

    request: Request
    owner: str
    """The owner as it stands in names."""
    who: str
    """The owner as `authorize` returned it."""
    body: Any = None
    raw: bytes = b""

    @property
    def key(self) -> str:
        """The id in the path.

        Raises:
            Refusal: no id looks so.
        """
        id: str = self.request.path_params["id"]
        if not is_id(id):
            raise nothing("run or chat", f":{id}")
        return id

    @property
    def name(self) -> str:
        """The name of the run, or the chat, in the path."""
        return f"{self.owner}:{self.key}"

    @property
    def is_about_chat(self) -> bool:
        """True when the path is that of a chat, and not of a run."""
        return self.request.scope["route"].path.startswith("/chats/")

    @property
    def is_stream(self) -> bool:
        """True when the client wants events."""
        return "text/event-stream" in self.request.headers.get("accept", "")

    @property
    def is_detached(self) -> bool:
        """True when the client does not want to wait."""
        return "respond-async" in self.request.headers.get("prefer", "")


@runtime_checkable
class TakesPart(Protocol):
    """A telemetry that can tell of a run as a part of what its client does."""

    def within(self, traceparent: str) -> AbstractContextManager[None]:
        """Let what begins in the block be a part of what a W3C `traceparent` names."""
        ...


@dataclass(slots=True, eq=False)
class _Endpoint:
    """Answers the requests of one route."""

    hosting: Hosting
    authorize: Authorize | None
    endpoints: _Endpoints
    operations: Mapping[str, Operation]
    """By their methods."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._answer(Request(scope, receive))
        except Refusal as refusal:
            response = refusal_response(refusal)
        except InvalidArguments as invalid:
            response = refusal_response(invalid_input(invalid))
        except StoreError as error:
            _log.warning("A request could not be answered: %s", error)
            response = refusal_response(Refusal(503, "STORE_AWAY", STORE_AWAY, "Ask again.", retry_s=RETRY_S))
        except ClientDisconnect:
            return
        except HTTPException:
            raise
        except Exception:  # noqa: BLE001 - of one request; its client is told
            _log.exception("A request to %s failed.", scope["path"])
            response = refusal_response(
                Refusal(500, "INTERNAL_ERROR", "The request failed.", "The server's log says why.")
            )
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> ASGIApp:
        asked = ApiRequest(request, owner=_EVERYBODY, who=_EVERYBODY)
        operation = self.operations["GET" if request.method == "HEAD" else request.method]
        if not operation.is_open:
            await self.hosting.open_for_request()
            _ = self.hosting.durable  # it must be open
            if self.authorize is not None:
                owner = await self._owner(self.authorize, request)
                if owner is None:
                    raise Refusal(
                        401, "UNAUTHORIZED", "The server does not know who asks.", "Log in, or bring a token."
                    )
                asked.who, asked.owner = owner, owner_key(owner)
        if request.method == "POST":
            for code, check in (("WRONG_TYPE", check_type), ("WRONG_ENCODING", check_encoding)):
                if (unwelcome := check(request.headers)) is not None:
                    status, message, hint, headers = unwelcome
                    raise Refusal(status, code, message, hint, headers=headers)
            asked.raw = await self._body(request)
            asked.body = parse_body(asked.raw)
        telemetry = self.hosting.runtime.telemetry
        if telemetry is None or not isinstance(telemetry, TakesPart):
            return await operation.handler(self.endpoints, asked)
        if (above := request.headers.get("traceparent")) is None:
            return await operation.handler(self.endpoints, asked)
        with telemetry.within(above):
            return await operation.handler(self.endpoints, asked)

    async def _owner(self, authorize: Authorize, request: Request) -> str | None:
        try:
            async with asyncio.timeout(self.hosting.limits.hook_s):
                owner = authorize(request)
                return await owner if is_awaited(owner) else owner
        except TimeoutError:
            text = "The server could not find out in time who asks."
            raise Refusal(503, "NO_OWNER", text, "Ask again.", retry_s=RETRY_S) from None

    async def _body(self, request: Request) -> bytes:
        body = await read_body(request.receive, most=self.hosting.limits.body_bytes)
        if isinstance(body, Unwelcome):
            raise Refusal(body.status, "TOO_LARGE" if body.status == 413 else "TOO_SLOW", body.message, body.hint)
        return body


def refusal_response(refusal: Refusal) -> Response:
    """Return the response that tells a client why its request is refused."""
    error = documents.RefusedDocument(code=refusal.code, message=refusal.message, hint=refusal.hint)
    if refusal.issues:
        error["issues"] = refusal.issues
    headers = dict(refusal.headers)
    if refusal.retry_s is not None:
        headers["Retry-After"] = str(refusal.retry_s)
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    body = known_secrets.mark_bytes(write_json(documents.ErrorDocument(error=error)))
    return Response(body, refusal.status, headers, media_type=_JSON)


def http_error(error: HTTPException) -> Response:
    """Return the response to a request for a route or a method that does not exist."""
    code = {404: "NOT_FOUND", 405: "WRONG_METHOD"}.get(error.status_code, "REFUSED")
    headers = error.headers or {}
    return refusal_response(Refusal(error.status_code, code, f"{error.detail}.", "See /openapi.json.", headers=headers))


_JSON_TYPE: Final = (b"content-type", _JSON.encode())


class JsonResponse:
    """A response of JSON in as few steps as there can be: most requests get one."""

    def __init__(self, body: bytes, status: int, location: str | None) -> None:
        self._body, self._status = body, status
        self._headers = [(b"content-length", b"%d" % len(body)), _JSON_TYPE]
        if location is not None:
            self._headers.append((b"location", location.encode("latin-1")))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self._status, "headers": self._headers})
        await send({"type": "http.response.body", "body": self._body})


def json_response(value: object, status: int = 200, *, location: str | None = None) -> JsonResponse:
    """Return a response that says a value."""
    data = known_secrets.mark_bytes(value if isinstance(value, bytes) else write_json(value, default=repr))
    return JsonResponse(data, status, location)


class _Endpoints:  # noqa: PLR0904 - one for each route
    """The handlers of all routes, each of which answers its requests."""

    def __init__(self, hosting: Hosting) -> None:
        self._hosting: Final = hosting
        self._threads: Final = Threads()
        self._document: bytes | None = None

    async def health(self, asked: ApiRequest) -> ASGIApp:
        return json_response(documents.Said(status="ok"))

    async def ready(self, asked: ApiRequest) -> ASGIApp:
        hosting = self._hosting
        await hosting.open_for_request()
        if hosting.is_closing:
            text = "The server is closing."
            raise Refusal(503, "CLOSING", text, "Ask another one.", retry_s=RETRY_S)
        await hosting.durable.hub.engine.forget(())  # writes nothing, where something could be written
        return json_response(documents.Said(status="ready"))

    async def openapi(self, asked: ApiRequest) -> ASGIApp:
        agents, most = self._hosting.agents, self._hosting.limits.body_bytes
        if self._document is None:
            self._document = write_json(await asyncio.to_thread(openapi.document, OPERATIONS, agents, most))
        return json_response(self._document)

    async def agents(self, asked: ApiRequest) -> ASGIApp:
        listed = [_fill(documents.ServedAgent, each) for each in self._hosting.agents.values()]
        return json_response(documents.AgentList(agents=listed))

    async def begin(self, asked: ApiRequest) -> ASGIApp:
        agent = self._hosting.agent(asked.request.path_params["agent"])
        value = await input_of_body(agent, asked.body)
        key = idempotency_key(asked.request) or secrets.token_hex(12)
        live = await self._hosting.start(f"{asked.owner}:{key}", agent, value, is_tied=not asked.is_detached)
        return await self._answer_follower(asked, live, f"/runs/{key}")

    async def _answer_follower(self, asked: ApiRequest, live: Live | Past, place: str) -> ASGIApp:
        """Answer with the events, or with the result once it is there. `place`: where it is found, in this app."""
        place = asked.request.scope.get("root_path", "") + place
        if asked.is_stream:
            headers = [(b"location", place.encode()), (b"x-run-id", live.name.partition(":")[2].encode())]
            return EventStream(self._hosting, live, Plain(live, 0), headers=headers)
        if asked.is_detached:
            begun = documents.BegunDocument(id=key_of(live.name), agent=live.agent.name, status="running")
            return json_response(begun, 202, location=place)
        check_followers(self._hosting)
        self._hosting.n_followers += 1
        try:
            if not await live.until_over(asked.request.receive):
                raise ClientDisconnect
        finally:
            self._hosting.n_followers -= 1
        return ended_response(live, location=place)

    async def runs(self, asked: ApiRequest) -> ASGIApp:
        before, limit = page_of(asked.request)
        engine, prefix = self._hosting.durable.hub.engine, f"{asked.owner}:"
        found = await engine.rows(prefix=prefix, older_than=before, limit=limit)
        infos = await self._hosting.durable.hub.engine.infos(
            [each for each in found if each.agent in self._hosting.agents]
        )
        runs = [_fill(documents.RunLine, each, id=key_of(each.name or "")) for each in infos]
        return json_response(documents.RunList(runs=runs, next=_next_place(found, limit)))

    async def chats(self, asked: ApiRequest) -> ASGIApp:
        before, limit = page_of(asked.request)
        found = await self._hosting.durable.hub.engine.sessions(f"{asked.owner}:", older_than=before, limit=limit)
        line, going = documents.ChatLine, self._is_running
        chats = [_fill(line, each, id=key_of(each.id), is_running=going(each.id)) for each in found]
        return json_response(documents.ChatList(chats=chats, next=_next_place(found, limit)))

    def _is_running(self, chat: str) -> bool:
        live = self._hosting.live(TURN + chat)
        return live is not None and live.ended is None

    async def delete(self, asked: ApiRequest) -> ASGIApp:
        await (delete_chat if asked.is_about_chat else delete_run)(self._hosting, asked.name)
        return Response(status_code=204)

    async def run(self, asked: ApiRequest) -> ASGIApp:
        info = await self._hosting.info(asked.name)
        result = await self._hosting.result(asked.name) if info.is_over else None
        document = _fill(
            documents.RunDocument,
            info,
            id=asked.key,
            reason=None if info.status == "blocked" else info.reason,  # its words are for the operator
            questions=[_question(each) for each in info.pending],
            result=None if result is None else orjson.Fragment(result),
        )
        return json_response(document)

    async def events(self, asked: ApiRequest) -> ASGIApp:
        after = after_of(asked.request)
        live = await (self._hosting.go_on if asked.is_about_chat else self._hosting.find)(asked.name)
        return EventStream(self._hosting, live, Plain(live, after), after=after)

    async def _target(self, asked: ApiRequest) -> tuple[str, Live | None]:
        """Return the run that is meant, by its name; and what is followed of it."""
        if asked.is_about_chat:
            return await self._hosting.turn_run(asked.name), self._hosting.live(TURN + asked.name)
        return asked.name, self._hosting.live(asked.name)

    async def stop(self, asked: ApiRequest) -> ASGIApp:
        reason = parse_object(documents.StopBody, asked.body).reason
        run, live = await self._target(asked)
        await self._hosting.handle(run)
        await self._hosting.stop(run, live, reason, who=asked.who)
        return json_response(documents.Said(status="stopping"), 202)

    async def steer(self, asked: ApiRequest) -> ASGIApp:
        text = parse_object(documents.TextBody, asked.body).text
        run, _ = await self._target(asked)
        await self._hosting.steer(run, text, who=asked.who)
        return json_response(documents.Said(status="said"), 202)

    async def answer(self, asked: ApiRequest) -> ASGIApp:
        answer = answer_of(asked.body)
        run, live = await self._target(asked)
        await self._hosting.answer(run, live, asked.request.path_params["question"], answer, who=asked.who)
        return json_response(documents.Said(status="answered"), 202)

    async def turn(self, asked: ApiRequest) -> ASGIApp:
        agent = self._hosting.agent(asked.request.path_params["agent"])
        value = await input_of_body(agent, asked.body)
        key = idempotency_key(asked.request)
        live = await self._hosting.turn(
            asked.name,
            agent,
            value,
            key=None if key is None else (key, f"{agent.name} {asked.raw.decode()}"),
            is_tied=not asked.is_detached,
        )
        return await self._answer_follower(asked, live, f"/chats/{asked.key}")

    async def chat(self, asked: ApiRequest) -> ASGIApp:
        snapshot = await self._hosting.conversation(asked.name)
        questions = await self._hosting.questions(await self._hosting.turn_run(asked.name))
        document = documents.ChatDocument(
            id=asked.key,
            is_running=self._is_running(asked.name),
            messages=adapter_of(tuple[Message, ...]).dump_python(tuple(snapshot.messages), mode="json", fallback=repr),
            usage=snapshot.usage,
            questions=[_question(each) for each in questions],
        )
        return json_response(document)

    async def agui(self, asked: ApiRequest) -> ASGIApp:
        read = run_input(asked.body)
        given = read.given
        agent = with_tools(self._hosting.agent(asked.request.path_params["agent"]), given)
        if not is_id(given.thread_id):
            raise refusals.wrong("threadId", f"it is not of the form {documents.ID}")
        id, results, answered = f"{asked.owner}:{given.thread_id}", results_of(read), set[str]()
        begins = not given.resume and not results
        value = await typed_input(agent, read) if begins else None
        live = self._hosting.live(TURN + id)
        is_known = self._threads.find(live, given.run_id) is not None
        if live is not None and not is_known:
            await self._hosting.learn_end(live)
        if begins:
            key = (given.run_id, f"{agent.name} {value!r}")
            if live is not None and live.open and not is_known:
                text = f"The thread {given.thread_id!r} waits for answers: {', '.join(live.open)}."
                return failed_run(given, Refusal(409, "NOT_ANSWERED", text, "Send them as resume."))
            live = await self._hosting.turn(id, agent, value, key=key)
        else:
            if live is None or not is_known:
                try:
                    live, answered = await self._resume_turn(asked, given, agent, results)
                except Refusal as refusal:
                    if not given.resume or refusal.status >= 500:
                        raise
                    return failed_run(given, refusal)
            if live.agent.name != agent.name:
                text = f"The thread {given.thread_id!r} is one with {live.agent.name!r}, not with {agent.name!r}."
                raise Refusal(409, "CHAT_UNUSABLE", text, "Take another thread for another agent.")
        segment = self._threads.of(live, given.run_id, answered)
        seen = seen_of(asked.request)
        wording = Agui(live, segment, thread_id=given.thread_id, seen=seen)
        return EventStream(self._hosting, live, wording, after=segment.after)

    async def _resume_turn(
        self, asked: ApiRequest, given: RunAgentInput, agent: Agent[Any, Any, Any], results: Mapping[str, str]
    ) -> tuple[Live, set[str]]:
        """Answer what a turn waits for, and go on with it. Return the ids of what is answered, too."""
        id, answers = f"{asked.owner}:{given.thread_id}", answers_of(given)
        is_new = self._hosting.live(TURN + id) is None
        live = await self._hosting.go_on(id, agent)
        wanted = {each.question: each.id for each in live.open.values() if isinstance(each, QuestionAsked)}
        if given.resume and not is_new:
            self._threads.check_answers(live, answers)
        early: dict[str, str] = {}
        for call, result in results.items():
            question = external_question(call)
            if question in wanted:
                answers[wanted[question]] = result
            else:
                early[question] = result
        if not answers and not is_new:
            text = "No call waits for these results."
            raise Refusal(409, "NOT_WAITING", text, "Look at what the run waits for.")
        live.early |= early
        run = await self._hosting.turn_run(id)
        for question, answer in answers.items():
            await self._hosting.answer(run, live, question, answer, who=asked.who)
        return live, {*answers}


def _operations() -> Iterator[Operation]:
    of, ok, get, post = _Endpoints, openapi.answer_ok, partial(Operation, "GET"), partial(Operation, "POST")
    yield get("/health", of.health, "The server is alive", ok(documents.Said), is_open=True)
    yield get("/ready", of.ready, "The server takes requests", ok(documents.Said), errors=(503,), is_open=True)
    yield get("/openapi.json", of.openapi, is_open=True)
    yield get("/agents", of.agents, "The agents that are served", ok(documents.AgentList))
    begin = partial(post, answers=openapi.ENDED, parameters=openapi.RUN_HEADERS, errors=(429,))
    yield begin("/agents/{agent}/runs", of.begin, "Run {agent}", bodies=(documents.RunBody,))
    about = "Say something to {agent}"
    yield begin("/agents/{agent}/chats/{id}/turns", of.turn, about, bodies=(documents.RunBody,))
    about = "{agent}, by the AG-UI protocol"
    yield post("/agents/{agent}/agui", of.agui, about, openapi.EVENTS, (documents.AguiBody,), errors=(429,))
    listed = partial(get, parameters=openapi.PAGE, errors=(400, 503))
    yield listed("/runs", of.runs, "Your runs, newest first", ok(documents.RunList))
    yield listed("/chats", of.chats, "Your chats, newest first", ok(documents.ChatList))
    yield get("/runs/{id}", of.run, "A run", ok(documents.RunDocument))
    yield get("/chats/{id}", of.chat, "A chat", ok(documents.ChatDocument))
    for what in ("run", "chat"):
        one, about = f"/{what}s/{{id}}", f"The events of a {what}"
        yield get(f"{one}/events", of.events, about, openapi.EVENTS, (), openapi.AFTER, (400, 409, 429, 503))
        about = f"Delete a {what} that has ended"
        yield Operation("DELETE", one, of.delete, about, openapi.DELETED, errors=(409, 503))
        yield post(f"{one}/stop", of.stop, f"Stop a {what}", bodies=(documents.StopBody,))
        about = f"Say something to a {what} that goes on"
        yield post(f"{one}/steer", of.steer, about, bodies=(documents.TextBody,))
        answers = (documents.TextBody, *DECISION_WORDS)
        yield post(f"{one}/answers/{{question}}", of.answer, "Answer what waits", bodies=answers)


OPERATIONS: Final = tuple(_operations())
"""All that clients may ask for."""


def ended_response(live: Live | Past, *, location: str) -> JsonResponse:
    """Return the response that ends a run or turn: the document of its result, or why it does not go on."""
    ended = live.ended
    if ended is None or ended.code is None:
        document = b"{}" if ended is None else ended.document
        return json_response(document, 503, location=location)
    is_invalid = ended.code == "INVALID_INPUT"
    return json_response(ended.document, 422 if is_invalid else 200, location=location)


def _fill(kind: type[D], source: object, **given: object) -> D:
    """Return a document: what is not given stands in an object, under the same names."""
    names = kind.__annotations__
    return kind(**{name: given[name] if name in given else getattr(source, name) for name in names})


def _question(question: PendingQuestion) -> documents.QuestionDocument:
    return _fill(documents.QuestionDocument, question, id=question.question_id)


def page_of(request: Request) -> tuple[ListPlace | None, int]:
    """Return which part of a list a client asks for: behind which place, and how much.

    Raises:
        Refusal: it is none.
    """
    place, limit = request.query_params.get("before"), request.query_params.get("limit", str(LISTED))
    if re.fullmatch("[0-9]{1,9}", limit) is None or not 1 <= int(limit) <= MOST:
        raise Refusal(400, "BAD_NUMBER", f"{limit[:80]!r} is no limit.", f"Give a number from 1 to {MOST}.")
    if place is not None and _PLACE.fullmatch(place) is None:
        raise Refusal(400, "BAD_PLACE", f"{place[:80]!r} is no place in a list.", "Give the `next` of the page before.")
    created, _, id = (place or "").partition("_")
    return None if place is None else ListPlace(float(created), id), int(limit)


def _next_place(found: Sequence[ListedRun | SessionHead], limit: int) -> str | None:
    return None if len(found) < limit else f"{found[-1].created:.9f}_{found[-1].id}"


async def delete_run(hosting: Hosting, name: str) -> None:
    """Delete all that is kept of a run that has ended.

    Raises:
        Refusal: there is none, or it has not ended.
    """
    info = await hosting.info(name)
    if not info.is_over:
        raise Refusal(409, "NOT_OVER", f"The run {key_of(name)!r} is {info.status}.", "Stop it first.")
    await hosting.durable.hub.engine.forget([info.id])
    hosting.forget(name)


async def delete_chat(hosting: Hosting, id: str) -> None:
    """Delete all that is kept of a chat: what was said, and its turns.

    Raises:
        Refusal: there is none, or a turn of it has not ended.
    """
    await hosting.wait_until_left(id)
    snapshot, live = await hosting.conversation(id), hosting.live(TURN + id)
    engine = hosting.durable.hub.engine
    turn = await engine.get(turn_name(id, snapshot.n_runs + 1))
    goes_on = (live is not None and live.ended is None) or (turn is not None and turn.status not in OVER)
    in_use = Refusal(409, "CHAT_IN_USE", f"In the chat {key_of(id)!r} a turn goes on.", "Stop it first.")
    if goes_on:
        raise in_use
    try:
        await engine.delete_session(id)
    except SessionInUse:
        raise in_use from None
    except StoreError as error:
        if error.is_busy:
            raise
        if await engine.get(turn_name(id, 1)) is None:
            raise nothing("chat", id) from None
    hosting.forget(TURN + id)
