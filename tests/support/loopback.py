"""A strict loopback server over HTTP: it serves a script, records, judges, and refuses what a provider would refuse.

What a provider's API is like (its paths, rules, errors and bodies), a subclass says; what it has in common with the
others is here, and so is how a reply leaves with all its faults: late, torn, cut, reset or stalled.
"""

import asyncio
import inspect
import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from itertools import count
from random import Random
from types import TracebackType
from typing import ClassVar, Generic, Self, TypeVar, cast

import orjson
from aiohttp import web

from tests.support.messages_answers import SERIAL, AnyAnswer, Ending, Raw
from tests.support.messages_json import Json, as_object, as_text
from tests.support.messages_sse import body_bytes, with_serial
from tests.support.strict_request import api_key

_MAX_READ_BYTES = 128 * 1024 * 1024

A = TypeVar("A", bound=AnyAnswer)


@dataclass(slots=True, eq=False, kw_only=True)
class Recorded:
    """One request as it arrived."""

    serial: int
    """Number of the request, from 1."""
    method: str
    path: str
    headers: dict[str, str]
    """With lower-case names."""
    raw: bytes
    body: Json
    """Empty if the body was no JSON object."""
    violations: list[str] = field(default_factory=list[str])
    hung_up: bool = False
    """Whether the client went away before the answer was complete."""

    @property
    def model(self) -> str:
        return as_text(self.body.get("model"))


@dataclass(eq=False)
class Loopback(ABC, Generic[A]):
    """The server; an async context manager. Leaving it raises AssertionError with all violations."""

    name: ClassVar[str]
    paths: ClassVar[Collection[str]]
    """Where it takes a POST."""
    script: "Sequence[A | Raw] | Callable[[Json], A | Raw | Awaitable[A | Raw]]"
    _: KW_ONLY
    judging: bool = True
    """False serves without looking."""
    recording: bool = True
    """False keeps no requests."""
    accept_violations: bool = False
    """Whether leaving is quiet about violations; it is, too, if another error is on its way."""
    streaming: bool = True
    """False answers with one JSON document even where a stream is asked for."""
    bad_keys: Collection[str] = ()
    delay_s: float = 0.0
    """Waited before every reply."""
    n_writes: int = 4
    """In about how many writes a stream leaves, torn at arbitrary but seeded places."""
    seed: int = 0
    url: str = field(default="", init=False)
    requests: list[Recorded] = field(default_factory=list[Recorded], init=False)
    violations: list[str] = field(default_factory=list[str], init=False)
    in_flight: int = field(default=0, init=False)
    peak_in_flight: int = field(default=0, init=False)
    _callers: set[object] = field(default_factory=set[object], init=False)
    _n_taken: int = field(default=0, init=False)
    _serials: "count[int]" = field(default_factory=lambda: count(1), init=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def serves(self, path: str) -> bool:
        """Tell whether it takes a POST at this path."""
        return path in self.paths

    def asks_for_stream(self, recorded: Recorded) -> bool:
        """Tell whether a request asks for a stream."""
        return recorded.body.get("stream") is True

    @abstractmethod
    def prepare(self) -> None:
        """Do what takes long before the first request comes."""

    @abstractmethod
    def broken_rules(self, recorded: Recorded) -> list[str]:
        """Return every rule that a request breaks, each as `rule: text`."""

    @abstractmethod
    def fault(self, status: int, message: str) -> Raw:
        """Return an error as the API words it."""

    @abstractmethod
    def parts(self, answer: A, recorded: Recorded, *, stream: bool) -> list[bytes]:
        """Return an answer's body as whole parts: one per event, or the JSON document alone."""

    @abstractmethod
    def remember(self, answer: A, recorded: Recorded) -> None:
        """Keep an answer that is about to be served whole."""

    @property
    def n_connections(self) -> int:
        """Over how many connections requests came."""
        return len(self._callers)

    @property
    def n_unserved(self) -> int:
        """How many replies of a list are still to be served."""
        return 0 if callable(self.script) else len(self.script) - self._n_taken

    async def until(self, ready: Callable[[], bool]) -> None:
        """Wait for a condition on this server, such as `lambda: len(api.requests) == 2`."""
        while not ready():
            self._changed.clear()
            await self._changed.wait()

    async def __aenter__(self) -> Self:
        if self.judging:
            self.prepare()
        app = web.Application(client_max_size=_MAX_READ_BYTES)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=0.01, handle_signals=False
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _ in range(3):  # asyncio before 3.12 forgets a connection whose server is closed while it is being accepted
            await asyncio.sleep(0)
        await self._runner.cleanup()
        if self.violations and error is None and not self.accept_violations:
            raise AssertionError(f"The {self.name} was used wrongly:\n" + "\n".join(self.violations))

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        recorded = await self._record(request)
        with self._counted(recorded):
            return await self._send(request, self._refusal(recorded) or await self._reply(recorded), recorded)

    async def _record(self, request: web.Request) -> Recorded:
        self._callers.add(None if request.transport is None else request.transport.get_extra_info("peername"))
        sent = await request.read()
        recorded = Recorded(
            serial=next(self._serials),
            method=request.method,
            path=request.path,
            headers={name.lower(): value for name, value in request.headers.items()},
            raw=sent,
            body=_parsed(sent),
        )
        if self.recording:
            self.requests.append(recorded)
        return recorded

    @contextmanager
    def _counted(self, recorded: Recorded) -> Generator[None]:
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        self._changed.set()
        try:
            yield
        except (asyncio.CancelledError, ConnectionError):
            recorded.hung_up = True
            raise
        finally:
            self.in_flight -= 1
            self._changed.set()

    def _refusal(self, recorded: Recorded) -> Raw | None:
        if recorded.method != "POST" or not self.serves(recorded.path):
            return self._violated(recorded, [f"path: {recorded.method} {recorded.path} is not served"], 404)
        if api_key(recorded.headers) in self.bad_keys:
            return self.fault(401, "invalid x-api-key")
        if not self.judging:
            return None
        if not recorded.body:
            return self._violated(recorded, ["json: the request body is not valid JSON"], 400)
        if found := self.broken_rules(recorded):
            lacks_key = not api_key(recorded.headers)
            return self._violated(recorded, found, 401 if lacks_key else 400)
        return None

    def _violated(self, recorded: Recorded, found: list[str], status: int) -> Raw:
        recorded.violations += found
        self.violations += [f"request {recorded.serial}: {violation}" for violation in found]
        return self.fault(status, "; ".join(found))

    async def _reply(self, recorded: Recorded) -> A | Raw:
        try:
            reply = await self._next(recorded.body)
        except Exception as error:  # noqa: BLE001  a failing script becomes an answer and a violation
            return self._violated(recorded, [f"script: {type(error).__name__}: {error}"], 500)
        if not isinstance(reply, Raw) and self.judging and (reply.twist is None or reply.twist.goes_on):
            # Before it is sent: the next request may come before this one is done.
            self.remember(reply, recorded)
        return reply

    async def _next(self, body: Json) -> A | Raw:
        if callable(self.script):
            reply = self.script(body)
            return await reply if inspect.isawaitable(reply) else reply
        if not self.n_unserved:
            raise LookupError(f"all {self._n_taken} replies have been served")
        self._n_taken += 1
        return self.script[self._n_taken - 1]

    async def _send(self, request: web.Request, reply: A | Raw, recorded: Recorded) -> web.StreamResponse:
        await _hold_back(self.delay_s)
        await _hold_back(reply.wait)
        headers = {name: value.replace(SERIAL, str(recorded.serial)) for name, value in reply.headers.items()}
        if isinstance(reply, Raw):
            return web.Response(status=reply.status, body=with_serial(reply.body, recorded.serial), headers=headers)
        stream = self.streaming and self.asks_for_stream(recorded)
        payload, claimed_bytes = body_bytes(self.parts(reply, recorded, stream=stream), reply.twist)
        headers = {"content-type": "text/event-stream; charset=utf-8" if stream else "application/json", **headers}
        if not stream and claimed_bytes == len(payload):
            return web.Response(body=payload, headers=headers)
        response = web.StreamResponse(headers=headers)
        if not stream:
            response.content_length = claimed_bytes
        await response.prepare(request)
        for piece in self._torn(payload, recorded.serial):
            await response.write(piece)
            await asyncio.sleep(0)
        await _finish(request, response, reply.twist.ending if reply.twist else "end")
        return response

    def _torn(self, payload: bytes, serial: int) -> list[bytes]:
        if self.n_writes <= 1:
            return [payload]
        random = Random(self.seed + serial)
        places = sorted(random.randrange(len(payload) + 1) for _ in range(self.n_writes - 1))
        pieces = [payload[start:end] for start, end in zip([0, *places], [*places, len(payload)], strict=True)]
        return [piece for piece in pieces if piece]


def _parsed(sent: bytes) -> Json:
    try:
        return as_object(orjson.loads(sent))
    except orjson.JSONDecodeError:
        return {}


async def _hold_back(wait: float | asyncio.Event) -> None:
    if isinstance(wait, asyncio.Event):
        await wait.wait()
    elif wait:
        await asyncio.sleep(wait)


async def _finish(request: web.Request, response: web.StreamResponse, ending: Ending) -> None:
    transport = request.transport
    if ending == "end":
        await response.write_eof()
    elif ending == "stall":
        await asyncio.Event().wait()
    elif transport is not None:
        if ending == "reset":
            connection = cast("socket.socket", transport.get_extra_info("socket"))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()
        else:
            transport.close()
