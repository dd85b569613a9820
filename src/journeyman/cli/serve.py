"""`journeyman serve`: agents behind HTTP, until Ctrl-C or SIGTERM.

The first signal lets what goes on end, for a while; then it is stopped, or left to another process that has the store.
The second signal does so at once.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final, cast

from cyclopts import Parameter
from starlette.types import ASGIApp

from journeyman.agent import Runtime
from journeyman.cancellation import Abort
from journeyman.cli.app import Mistake
from journeyman.cli.durable import find_store, in_store, tell
from journeyman.cli.ending import TimedEnd, ending_in_time, hearing
from journeyman.cli.load_agent import AgentLoop, check_names, describe_kind, load_model, load_value
from journeyman.cli.options import (
    OPENING_S,
    AgentNames,
    DebugFlag,
    Flag,
    HostNames,
    MaxConcurrency,
    ModelName,
    OtelFlag,
    RecordFlag,
    Seconds,
    StoreName,
    Timeout,
)
from journeyman.cli.run import Stdout, recording_in, telemetry_in
from journeyman.cli.show.lines import one_line
from journeyman.cli.show.log import log_shown
from journeyman.cli.show.screen import PlainScreen, stderr_console
from journeyman.closing import time_of_work
from journeyman.errors import DefinitionError, StoreError, quoted
from journeyman.serve.api import AgentApp, Authorize, create_app
from journeyman.serve.http_guard import (
    address_problems,
    asking_for,
    in_url,
    known_hosts,
    listening_socket,
    naming,
    serve_on,
)
from journeyman.serve.live import ServeLimits

TOKEN: Final = "JOURNEYMAN_SERVE_TOKEN"
"""The environment variable with the token that clients must bring."""
_HINTS: Final = {
    "NO_TOKEN": f"Set {TOKEN} to a long random text, give --authorize, or leave out --host.",
    "NO_HOST_NAME": "Say it: --allow-host agents.example.org",
}
_ADDRESS: Final = "127.0.0.1"
_PORT: Final = 8000
_LAST_PORT: Final = 65_535
_RUNS: Final = 64
_CONNECTIONS: Final = 2_000
_GRACE_S: Final = 30.0


def serve(  # noqa: PLR0913 - one for each option, all by name
    *targets: AgentNames,
    host: Annotated[
        str, Parameter(help="The address to listen on; JOURNEYMAN_SERVE_TOKEN if others reach it.")
    ] = _ADDRESS,
    port: Annotated[int, Parameter(help="The port to listen on (8000); 0 takes a free one.")] = _PORT,
    allow_host: HostNames = None,
    store: StoreName = None,
    durable: Annotated[Flag, Parameter(help="Keep runs and chats in the store of the other commands.")] = False,
    authorize: Annotated[
        str | None, Parameter(help="What returns the owner of a request, or None: auth.py:owner.")
    ] = None,
    max_concurrency: MaxConcurrency = _RUNS,
    grace: Seconds = _GRACE_S,
    model: ModelName = None,
    record: RecordFlag = False,
    otel: OtelFlag = False,
    timeout: Timeout = OPENING_S,
    debug: DebugFlag = False,
) -> int:
    """Serve agents behind HTTP: a JSON API, events as they happen, and AG-UI. /openapi.json says what there is.

    Where the environment has JOURNEYMAN_SERVE_TOKEN, clients must bring it: Authorization: Bearer … All who have it are
    one owner, who sees all runs; several owners take --authorize instead.
    """
    token = _token(host, names := allow_host or (), authorize)
    _check_options(targets, grace, max_concurrency, port)
    Stdout()
    place = find_store(store, makes=True) if durable or store is not None else None
    with _around(store, model, record is True, otel, grace=grace, timeout=timeout, debug=debug) as (around, loop, end):
        made = create_app(
            list(map(loop.agent, targets)),
            store=place and str(place.path),
            authorize=None if authorize is None else _authorize(authorize),
            runtime=around,
            limits=ServeLimits(runs=max_concurrency),
        )
        guarded = naming(known_hosts(host, names), made if token is None else asking_for(token, made), pages=names)
        if place is not None:
            in_store(place, lambda durable: durable.list(limit=1), loop)  # the server could only tell that it has ended
        gc.collect()
        gc.freeze()  # what lives as long as the server is not looked through again: that would delay events
        with _listening(host, port) as listening:
            address = f"http://{in_url(host)}:{listening.getsockname()[1]}"
            notice = f"serving at {address}; runs are kept in {place.shown if place else 'memory'}; Ctrl-C ends it"
            loop.run(_until_told(made, guarded, listening, end, notice=notice))
    return 0


@contextmanager
def _around(
    store: str | None, model: str | None, record: bool, otel: bool, *, grace: float, timeout: float, debug: bool
) -> Generator[tuple[Runtime, AgentLoop, TimedEnd]]:
    """Give the runtime of every run until the block is left, and say in one line why it cannot be made."""
    screen = PlainScreen(stderr_console())
    try:
        with (
            ending_in_time(grace) as end,
            log_shown(screen.say, debug=debug),
            recording_in(store, wish=record) as tape,
            telemetry_in(wish=otel, end=end) as telemetry,
            AgentLoop(timeout, end=end) as loop,
        ):
            yield Runtime(model=load_model(model), recorder=tape, telemetry=telemetry), loop, end
    except DefinitionError as error:
        raise Mistake(error.problems[0].message, error.problems[0].hint) from error
    except StoreError as error:
        raise Mistake(error.message, error.hint) from error
    finally:
        screen.close()


def _token(host: str, allow_host: Sequence[str], authorize: str | None) -> str | None:
    """Return the token that clients must bring, if they need one.

    Raises:
        Mistake: it is not safe to listen there, or two things say who is let in.
    """
    check_names(allow_host)
    token = os.environ.get(TOKEN) or None
    if token is not None and authorize is not None:
        text = f"Both {TOKEN} and --authorize say who is let in."
        raise Mistake(text, f"Leave out one: --authorize, or {TOKEN} from the environment.")
    for problem in address_problems(host, token, allow_host):
        if problem.code != "NO_TOKEN" or authorize is None:
            raise Mistake(problem.message, _HINTS.get(problem.code, problem.hint))
    return token


def _check_options(targets: Sequence[str], grace: float, runs: int, port: int) -> None:
    if not targets:
        raise Mistake("No agent is named.", "Name one or more: journeyman serve agents.py:analyst")
    if not 0 <= grace < float("inf"):
        raise Mistake(f"--grace {grace:g} is no time.", "Give a number of seconds: --grace 30.")
    if runs < 1:
        raise Mistake(f"--max-concurrency {runs} lets nothing go on.", "Give a number from 1 on.")
    if not 0 <= port <= _LAST_PORT:
        raise Mistake(f"--port {port} is no port.", f"Give a number from 0 to {_LAST_PORT}; 0 takes a free one.")


def _listening(host: str, port: int) -> socket.socket:
    try:
        return listening_socket(host, port)
    except OSError as error:
        raise Mistake(
            f"{host}:{port} cannot be used: {one_line(error.strerror or str(error))}.", "Choose another --port."
        ) from error


def _authorize(named: str) -> Authorize:
    """Return the function that names the owner of a request.

    Raises:
        Mistake: there is none.
    """
    found: object = load_value(named)
    if isinstance(found, type) or not callable(found):
        text = f"--authorize {quoted(named[:80])} is {describe_kind(found)}, not a function."
        raise Mistake(text, "Give FILE:FUNCTION of a function of the request.")
    return cast("Callable[..., Any]", found)


async def _until_told(
    made: AgentApp, guarded: ASGIApp, listening: socket.socket, end: TimedEnd, *, notice: str
) -> None:
    """Serve until a signal says that it is enough. `notice` is shown once signals are heard."""
    loop, abort, at_once = asyncio.get_running_loop(), Abort(), asyncio.Event()

    def hear(_: object) -> None:
        end.hear()
        loop.call_soon_threadsafe(heed)

    def heed() -> None:
        if abort.aborted:
            at_once.set()
        else:
            has_s = time_of_work(end.grace_s)
            tell(
                f"stopping within {end.grace_s:g} s: what goes on has {has_s:g} s to end; once more, and it is stopped"
                " at once"
            )
            abort.abort()

    async def close() -> None:
        draining = asyncio.ensure_future(made.drain(end.grace_s))
        hurrying = asyncio.ensure_future(at_once.wait())
        await asyncio.wait({draining, hurrying}, return_when=asyncio.FIRST_COMPLETED)
        hurrying.cancel()
        if not draining.done():
            draining.cancel()
            await asyncio.wait({draining})
            await made.drain(0.0)

    with hearing(hear):
        tell(notice)
        await serve_on(listening, guarded, abort=abort, connections=_CONNECTIONS, before_closing=close, closing=end)
