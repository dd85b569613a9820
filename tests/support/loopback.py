"""A strict loopback server over HTTP: it serves a script, records, judges, and refuses what a provider would refuse.

What a provider's API is like (its paths, rules, errors and bodies) is a `Wire`; what it has in common with the others
is here.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from itertools import count
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

import orjson
from aiohttp import web

from tests.support.messages_answers import Raw
from tests.support.messages_delivery import Delivery, Whole, send
from tests.support.messages_json import Json, as_object, as_text

_MAX_READ_BYTES = 128 * 1024 * 1024

W = TypeVar("W", bound=Whole)
W_contra = TypeVar("W_contra", bound=Whole, contravariant=True)


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


class Wire(Protocol[W_contra]):
    """What one provider's API is like."""

    name: str
    status_of_rule: Mapping[str, int]
    """The statuses with which a request is refused; 400 for every other rule."""

    def prepare(self) -> None:
        """Do what takes long before the first request comes."""
        ...

    def serves(self, method: str, path: str) -> bool: ...

    def key(self, headers: dict[str, str]) -> str:
        """Return the key of a request, empty if it has none."""
        ...

    def aside(self, recorded: Recorded) -> Raw | None:
        """Return the reply to a request that is not for the model; None for any other."""
        ...

    def violations(self, recorded: Recorded) -> list[str]:
        """Return every rule that a request breaks, each as `rule: text`."""
        ...

    def fault(self, status: int, message: str) -> Raw: ...

    def parts(self, answer: W_contra, recorded: Recorded, delivery: Delivery) -> list[bytes]:
        """Return an answer's body as whole parts: one per event, or the JSON document alone."""
        ...

    def remember(self, answer: W_contra, recorded: Recorded) -> None:
        """Keep an answer that is about to be served whole."""
        ...


@dataclass(eq=False)
class Loopback(Generic[W]):
    """The server; an async context manager. Leaving it raises AssertionError with all violations."""

    script: "Sequence[W | Raw] | Callable[[Json], W | Raw | Awaitable[W | Raw]]"
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
    wire: Wire[W] = field(init=False)
    url: str = field(default="", init=False)
    requests: list[Recorded] = field(default_factory=list[Recorded], init=False)
    violations: list[str] = field(default_factory=list[str], init=False)
    in_flight: int = field(default=0, init=False)
    peak_in_flight: int = field(default=0, init=False)
    _n_taken: int = field(default=0, init=False)
    _serials: "count[int]" = field(default_factory=lambda: count(1), init=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)

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
            self.wire.prepare()
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
            raise AssertionError(f"The {self.wire.name} was used wrongly:\n" + "\n".join(self.violations))

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        recorded = await self._record(request)
        with self._counted(recorded):
            reply = self._refusal(recorded) or await self._reply(recorded)
            delivery = Delivery(
                serial=recorded.serial,
                stream=self.streaming and recorded.body.get("stream") is True,
                model=as_text(recorded.body.get("model")),
                n_writes=self.n_writes,
                seed=self.seed,
                delay_s=self.delay_s,
            )
            if isinstance(reply, Raw):
                return await send(request, reply, delivery, [])
            return await send(request, reply, delivery, self.wire.parts(reply, recorded, delivery))

    async def _record(self, request: web.Request) -> Recorded:
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
        if not self.wire.serves(recorded.method, recorded.path):
            return self._violated(recorded, [f"path: {recorded.method} {recorded.path} is not served"], 404)
        if self.wire.key(recorded.headers) in self.bad_keys:
            return self.wire.fault(401, "invalid x-api-key")
        aside = self.wire.aside(recorded)
        if aside is not None or not self.judging:
            return aside
        if not recorded.body:
            return self._violated(recorded, ["json: the request body is not valid JSON"], 400)
        if found := self.wire.violations(recorded):
            broken = [violation.partition(":")[0] for violation in found]
            statuses = self.wire.status_of_rule
            status = next((statuses[rule] for rule in broken if rule in statuses), 400)
            return self._violated(recorded, found, status)
        return None

    def _violated(self, recorded: Recorded, found: list[str], status: int) -> Raw:
        recorded.violations += found
        self.violations += [f"request {recorded.serial}: {violation}" for violation in found]
        return self.wire.fault(status, "; ".join(found))

    async def _reply(self, recorded: Recorded) -> W | Raw:
        try:
            reply = await self._next(recorded.body)
        except Exception as error:  # noqa: BLE001  a failing script becomes an answer and a violation
            return self._violated(recorded, [f"script: {type(error).__name__}: {error}"], 500)
        if not isinstance(reply, Raw) and self.judging and (reply.twist is None or reply.twist.goes_on):
            # Before it is sent: the next request may come before this one is done.
            self.wire.remember(reply, recorded)
        return reply

    async def _next(self, body: Json) -> W | Raw:
        if callable(self.script):
            reply = self.script(body)
            return await reply if inspect.isawaitable(reply) else reply
        if not self.n_unserved:
            raise LookupError(f"all {self._n_taken} replies have been served")
        self._n_taken += 1
        return self.script[self._n_taken - 1]


def _parsed(sent: bytes) -> Json:
    try:
        return as_object(orjson.loads(sent))
    except orjson.JSONDecodeError:
        return {}
