"""The viewer as an ASGI application: its pages, what they ask for, and what they say to runs; and on a port, by default
only for this machine, and only for whoever has the address with its token.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Final, TypeAlias, cast

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from journeyman.cancellation import Abort
from journeyman.errors import DefinitionError, StoreError, count
from journeyman.events.run_status import GOES_ON, RunStatus
from journeyman.record.packing import dumped
from journeyman.record.reading import MOST, RecordedRun, Recordings
from journeyman.record.schema import find_store
from journeyman.serve.http_guard import (
    LOOPBACK,
    HttpGuard,
    Pages,
    Unwelcome,
    address_problems,
    check_encoding,
    check_type,
    in_url,
    is_wildcard,
    known_hosts,
    listen,
    path_in,
    read_body,
    serve_on,
)
from journeyman.types import adapter_of
from journeyman.view.documents import ForgottenDocument, RefusalDocument, RequestsDocument, SignalsDocument
from journeyman.view.live import TEXT_SHOWN, LiveStreams, Reader
from journeyman.view.queries import Filters, StoreReader, is_anothers
from journeyman.view.steering import Given, Steering, Unwanted

Form: TypeAlias = Callable[[Recordings, RecordedRun], Iterator[str]]
"""Gives the lines of an export."""
_TYPES: Final[Mapping[str, tuple[str, str]]] = {
    "jsonl": ("application/jsonl; charset=utf-8", "jsonl"),
    "markdown": ("text/markdown; charset=utf-8", "md"),
    "html": ("text/html; charset=utf-8", "html"),
    "cassette": ("application/json", "json"),
}
_MEDIA_TYPES: Final = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_MOST_DAYS: Final = 366  # a leap year
_MOST_EVENTS: Final = 10_000
_MOST_SHOWN: Final = 500
_LISTED: Final = 100
_LARGEST: Final = 10**15
"""The number that numbers in an address are below."""
_MOST_BYTES: Final = 1_000_000
"""How long the body of a request may be."""
_PORT: Final = 7878
_PORTS_TRIED: Final = 50
_MOST_AT_ONCE: Final = 200
_DATA: Final = "/api/"
"""How the paths of what the pages ask for begin."""
_HEADERS: Final = {
    "content-security-policy": "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'; object-src 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]{1,200}")
"""An id that stands in an address as it is."""


def create_viewer(
    store: str | os.PathLike[str],
    *,
    token: str | None = None,
    hosts: Sequence[str] = LOOPBACK,
    read_only: bool = False,
    forms: Mapping[str, Form] | None = None,
) -> ASGIApp:
    """Return the viewer of a store.

    Args:
        store: A file, or `postgresql://…`, with recordings, or with durable runs.
        token: What whoever looks has to bring, in the address that is opened first. None: nothing; then only what
            stands before this application decides who may look.
        hosts: The names under which it is asked, without ports; requests to others are refused.
        read_only: Nobody can say anything to a run, or forget one. So it is for the store of another user.
        forms: What writes exports, by the name of the form.

    Raises:
        StoreError: the store cannot be opened.
    """
    path = find_store(store)
    read_only = read_only or (isinstance(path, Path) and is_anothers(path))
    with Recordings(path):  # what cannot be opened is said now, and not to the first who looks
        pass
    view = _Viewer(path, read_only=read_only, forms=forms or {})

    @asynccontextmanager
    async def life(_: Starlette) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await view.close()

    answered = dict.fromkeys((StoreError, LookupError, ValueError, _NotChanged), _answer_error)
    routes = [*view.routes(), Mount("/", _Pages())]
    return HttpGuard(
        Starlette(routes=routes, lifespan=life, exception_handlers=answered),
        hosts=hosts,
        token=token,
        checks=(check_type, check_encoding),
        pages=Pages(data=_DATA, cookie="journeyman-view", headers=_HEADERS),
        refuse=refusal,
        hints=(f"Open it as {hosts[0]}.", "Open the address that journeyman view has printed."),
    )


async def serve_view(  # noqa: PLR0913 - one for each option, all by name
    store: str | os.PathLike[str],
    *,
    address: str = "127.0.0.1",
    port: int | None = None,
    token: str | None = None,
    names: Sequence[str] = (),
    read_only: bool = False,
    forms: Mapping[str, Form] | None = None,
    abort: Abort | None = None,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve the viewer of a store until `abort` fires, or this is cancelled.

    Args:
        store: A file, or `postgresql://…`, with recordings, or with durable runs.
        address: Where to listen. Another one than this machine's own needs a token.
        port: Which port; 0: any that is free. None: 7878, or the next one that is free.
        token: What whoever looks has to bring, of 16 characters at least. None: a random one.
        names: Further names under which it is asked.
        read_only: Nobody can say anything to a run.
        forms: What writes exports, by the name of the form.
        abort: Ends it.
        on_ready: Called with the address to open.

    Raises:
        DefinitionError: others could reach it without a token of the caller's.
        StoreError: the store cannot be opened.
        OSError: the address cannot be used, or the port is taken; then its text names the next free one.
    """
    first = _PORT if port is None else port
    if problems := address_problems(address, first, token, names):
        raise DefinitionError("The viewer", problems)
    token = token or secrets.token_urlsafe(24)
    hosts = known_hosts(address, names)
    view = create_viewer(store, token=token, hosts=hosts, read_only=read_only, forms=forms)
    with listen(address, first, tries=_PORTS_TRIED if port is None else 1) as listening:
        if on_ready is not None:
            host = in_url(names[0] if names and is_wildcard(address) else address)
            on_ready(f"http://{host}:{listening.getsockname()[1]}/?token={token}")
        await serve_on(listening, view, abort=abort, connections=_MOST_AT_ONCE)


def refusal(status: int, error: str, hint: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer that says what is wrong, and what to do."""
    return JSONResponse(RefusalDocument(error=error, hint=hint), status, headers)


class _Pages:
    """The files of the viewer, kept in memory. An address that is no file is a place in it."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[bytes, str, str]] = {}
        """Each with its type, and with what it is known by: a browser that has it already is not sent it again."""
        for each in (files("journeyman.view") / "static").iterdir():
            body = each.read_bytes()
            media_type = _MEDIA_TYPES[each.name.rpartition(".")[2]]
            self._files[f"/{each.name}"] = body, media_type, f'"{sha256(body).hexdigest()[:32]}"'
        self._files["/"] = self._files["/index.html"]
        self._files["/favicon.ico"] = self._files["/favicon.svg"]  # browsers ask for it where no page names an icon

    async def __call__(self, exchange: Scope, receive: Receive, send: Send) -> None:
        await self._answer(Request(exchange))(exchange, receive, send)

    def _answer(self, request: Request) -> Response:
        path = path_in(request.scope)
        if path.startswith(_DATA):
            return refusal(404, f"There is no {path[:200]}.", "Look at the routes of journeyman/view/asgi.py.")
        if request.method not in ("GET", "HEAD"):
            return refusal(405, "Pages are only looked at.", "Send GET.")
        if path not in self._files:
            if "." in path.rpartition("/")[2]:
                return refusal(404, f"There is no {path[:200]}.", "Open /.")
            return RedirectResponse(f"{request.scope.get('root_path', '')}/", 303)
        body, media_type, tag = self._files[path]
        headers = {"etag": tag, "cache-control": "no-cache"}
        if path == "/" and (first := _preload_links(request)):
            headers["link"] = first
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=media_type, headers=headers)


def _preload_links(request: Request) -> str:
    """Return the links in the head of a page, by which the browser asks for data while it still reads the script.

    In viewer/src/client.ts are the same addresses."""
    given, id = request.query_params, request.query_params.get("run", "")
    if not given:
        asked = [f"api/runs?limit={_LISTED}"]
    elif _PLAIN.fullmatch(id) and not given.get("compare"):
        events = f"api/runs/{id}/events?after=0"
        rest = f"&skip={MOST}&limit={_MOST_EVENTS}"
        pages = [f"{events}{page}&most={TEXT_SHOWN}" for page in (f"&limit={MOST}", rest)]
        asked = [f"api/runs/{id}", *pages, f"api/runs/{id}/requests"]
    else:
        asked = []
    return ", ".join(f"<{each}>; rel=preload; as=fetch; crossorigin" for each in asked)


async def _answer_error(_: Request, error: Exception) -> Response:
    """Return the answer to a request in which something was raised."""
    match error:
        case _NotChanged():
            return error.answer
        case StoreError():
            return refusal(503 if error.is_busy else 500, error.message, error.hint)
        case LookupError():
            return refusal(404, str(error.args[0]), "See the list of all runs.")
        case ValidationError():
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"])) or "the body"
            return refusal(422, f"{where}: {first['msg']}.", "Look at journeyman/view/steering.py.")
        case _:
            return refusal(422, str(error), "Look at what was given.")


class _NotChanged(Exception):
    """Nothing may be changed so; the answer says why."""

    def __init__(self, answer: Response) -> None:
        super().__init__()
        self.answer = answer


class _Viewer:
    """The handlers of the viewer's addresses, and the open store that they read."""

    def __init__(self, path: Path | str, *, read_only: bool, forms: Mapping[str, Form]) -> None:
        self._path = path
        self._read_only = read_only
        self._forms = forms
        self._reader = Reader(path)
        self._searcher = Reader(path)
        """Another one, so that a long search keeps nobody waiting."""
        self._live = LiveStreams(path, read_only=read_only)
        self._steering = Steering(path)

    async def close(self) -> None:
        """Close what was opened."""
        await self._live.close()
        for each in (self._reader, self._searcher):
            await each.close()
        await self._steering.close()

    def routes(self) -> list[Route]:
        """Return all addresses under /api. An error is a `RefusalDocument`."""

        def tell(read: Callable[[StoreReader, Request], object]) -> Callable[[Request], Awaitable[Response]]:
            async def answer(request: Request) -> Response:
                return _json_response(await self._reader.read(lambda source: read(source, request)))

            return answer

        one = "/api/runs/{id}"
        return [
            Route("/api/store", tell(lambda source, _: source.store(read_only=self._read_only))),
            Route("/api/runs", self.runs),
            Route("/api/forget", self.forget, methods=["POST"]),
            Route("/api/days", self.days),
            Route("/api/live", self.live),
            Route(one, tell(lambda source, asked: source.run(_id(asked)))),
            Route(f"{one}/events", self.events),
            Route(f"{one}/events/{{n:int}}", tell(lambda source, asked: source.event(_id(asked), _n(asked)))),
            Route(
                f"{one}/requests", tell(lambda source, asked: RequestsDocument(requests=source.requests(_id(asked))))
            ),
            Route(f"{one}/requests/{{n:int}}", tell(lambda source, asked: source.pieces(_id(asked), _n(asked)))),
            Route(f"{one}/requests/{{n:int}}/body", self.body),
            Route(f"{one}/export", self.export),
            Route(f"{one}/signals", self.signals, methods=["GET"]),
            Route(f"{one}/signals", self.say, methods=["POST"]),
        ]

    async def runs(self, request: Request) -> Response:
        """`?agent&status&failed&since&over_cost&q&tool&before&limit`: a page of runs, those behind `before`."""
        given = request.query_params
        filters = Filters(
            agent=given.get("agent") or None,
            status=cast("RunStatus | None", given.get("status") or None),
            failed=given.get("failed", "") in ("1", "true"),
            since=_number(request, "since"),
            over_cost=_number(request, "over_cost"),
            text=given.get("q", "").strip()[:500],
            tool=given.get("tool") or None,
        )
        limit = max(1, min(int(_number(request, "limit") or 50), MOST))
        reader = self._searcher if filters.text or filters.tool else self._reader
        before = given.get("before") or None
        return _json_response(await reader.read(lambda source: source.runs(filters, before=before, limit=limit)))

    async def days(self, request: Request) -> Response:
        n_days = max(1, min(int(_number(request, "days") or 30), _MOST_DAYS))
        return _json_response(await self._searcher.read(lambda source: source.days(n_days)))

    async def events(self, request: Request) -> Response:
        """`?after&skip&limit&most`: a page of events; of each text longer than `most` only its beginning."""
        after, limit = int(_number(request, "after") or 0), int(_number(request, "limit") or MOST)
        most, skip = _number(request, "most"), max(0, int(_number(request, "skip") or 0))
        shown = None if most is None else max(1, min(int(most), TEXT_SHOWN))
        allowed = MOST if shown is None else _MOST_EVENTS
        events = await self._reader.read(
            lambda source: source.events(
                _id(request), after=after, skip=skip, limit=max(1, min(limit, allowed)), most=shown
            )
        )
        return _json_response(events)

    async def body(self, request: Request) -> Response:
        """The bytes of a request, as they were sent."""
        body = await self._reader.read(lambda source: source.body(_id(request), _n(request)))
        return Response(body, media_type="application/octet-stream")

    async def export(self, request: Request) -> Response:
        """`?as=jsonl|markdown|html|cassette`: a recording in another form."""
        name, id = request.query_params.get("as", "jsonl"), _id(request)
        write = self._forms.get(name)
        if write is None:
            known = ", ".join(self._forms) or "none"
            raise LookupError(f"Nothing here writes {name[:50]!r}: the forms are {known}.")
        run = await self._reader.read(lambda source: source.recording(id))
        if run is None:
            raise LookupError(f"The run {id[:80]!r} has no recording to export.")
        text = await self._searcher.read(lambda source: "\n".join(write(source.recordings, run)))
        media_type, ending = _TYPES.get(name, ("text/plain; charset=utf-8", "txt"))
        headers = {"content-disposition": f'attachment; filename="{run.id}.{ending}"'}
        return Response(text.encode("utf-8", "replace"), media_type=media_type, headers=headers)

    async def signals(self, request: Request) -> Response:
        signals = await self._reader.read(lambda source: source.told(_id(request)))
        return _json_response(SignalsDocument(signals=signals, read_only=self._read_only))

    async def say(self, request: Request) -> Response:
        """`Given` is taken; the answer is a `SteeringAnswer`."""
        id, signal = _id(request), adapter_of(Given).validate_json(await self._body(request))
        _, durable = await self._reader.read(lambda source: source.find_all([id]))  # who is not there is said so
        return _json_response(await self._steering.say(id, signal, is_durable=bool(durable)))

    async def forget(self, request: Request) -> Response:
        """`Unwanted` is taken: all of these runs are forgotten, or none, where one has not ended."""
        ids = [*dict.fromkeys(adapter_of(Unwanted).validate_json(await self._body(request)).runs)]
        if len(ids) > MOST:
            raise ValueError(f"These are {len(ids):,} runs, and at most {MOST:,} are forgotten at once.")
        found, durable = await self._reader.read(lambda source: source.find_all(ids))  # who is not there is said so
        if going := [run for run in found if run.status in GOES_ON or (run.id in durable and run.status == "died")]:
            first, *others = going
            told = f"The run {first.id} of {first.agent}"
            told += f" and {count(len(others), 'other')} have" if others else " has"
            told += " not ended. Nothing was forgotten."
            return refusal(409, told, "Stop what goes on first, or leave it out.")
        notice = await self._steering.forget([run for run in found if run.is_recorded], durable)
        return _json_response(ForgottenDocument(forgotten=len(ids), notice=notice))

    async def _body(self, request: Request) -> bytes:
        """Return what is to be changed; `_NotChanged` if it must not be."""
        if self._read_only:
            raise _NotChanged(refusal(403, "The store is only looked at here.", "Do it where the store is yours."))
        body = await read_body(request.receive, most=_MOST_BYTES)
        if isinstance(body, Unwelcome):
            raise _NotChanged(refusal(*body))
        return body

    async def live(self, request: Request) -> Response:
        """Server-sent events. `?run&after`: `events`, `run` and `words` of one run. `?newest&shown`: `runs` that are
        new or have changed since a list was read. `gone`: the store cannot be looked at any more."""
        id = request.query_params.get("run")
        after = _event_number(request)
        if id:
            run, later = await self._reader.read(
                lambda source: (source.run(id), source.events(id, after=after, limit=1, most=1))
            )
            if "last-event-id" in request.headers and run["status"] not in GOES_ON and not later["events"]:
                return Response(status_code=204)  # with which an EventSource asks no more
        newest, shown = _number(request, "newest"), request.query_params.get("shown", "").split(",")[:_MOST_SHOWN]
        if id:
            return _Watching(self._live, self._live.of_run(id, after))
        stream = self._live.of_all(-1 if newest is None else int(newest), [each for each in shown if each])
        return _Watching(self._live, stream)


class _Watching(StreamingResponse):
    """Events as they happen, for one who looks; unless too many do."""

    def __init__(self, live: LiveStreams, stream: AsyncGenerator[bytes]) -> None:
        super().__init__(stream, media_type="text/event-stream", headers={"x-accel-buffering": "no"})
        self._live = live

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._live.is_full:
            refused = refusal(503, "Too many look at this store at once.", "Close another window.")
            return await refused(scope, receive, send)
        with self._live.take_seat():
            await super().__call__(scope, receive, send)


def _event_number(request: Request) -> int:
    """Return the number of the last event that a client has; a `ValueError` if it is none."""
    given = request.headers.get("last-event-id")
    if not given:
        return int(_number(request, "after") or 0)
    if not (given.isascii() and given.isdecimal() and int(given) < _LARGEST):
        raise ValueError(f"Last-Event-ID is {given[:50]!r}, which is no number of an event.")
    return int(given)


def _n(request: Request) -> int:
    """Return the number in the address; of one that no database takes, one that nothing has."""
    return min(request.path_params["n"], _LARGEST)


def _json_response(value: object) -> Response:
    return Response(dumped(value), media_type="application/json")


def _id(request: Request) -> str:
    return str(request.path_params["id"])


def _number(request: Request, name: str) -> float | None:
    """Return a number of the query; a `ValueError` if it is none."""
    text = request.query_params.get(name)
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{name} is {text[:50]!r}, which is no number.") from None
    if not -_LARGEST < number < _LARGEST:
        raise ValueError(f"{name} is {text[:50]!r}, which is no number that is used here.")
    return number
