"""`journeyman serve`: agents behind HTTP, until Ctrl-C or SIGTERM.

The first signal lets what goes on end, for a while; then it is stopped, or left to another process that has the store.
The second signal does so at once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final, cast

from journeyman.cancellation import Abort
from journeyman.cli.app import Mistake
from journeyman.cli.durable import find_store, in_store, tell
from journeyman.cli.load_agent import check_names, load_value
from journeyman.cli.options import AgentNames, Flag, GivenOptions, HostNames, MaxConcurrency, Seconds, explain
from journeyman.cli.run import Stdout
from journeyman.cli.serving import Frame, check_named, frame_of, listening_told, mistake_of, tell_stopping, until_told
from journeyman.serve.api import AgentApp, Authorize, create_app
from journeyman.serve.http_guard import (
    HttpGuard,
    address_problems,
    in_url,
    known_hosts,
    listen,
    serve_on,
    spare_collections,
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
_RUNS: Final = 64
_CONNECTIONS: Final = 2_000
_GRACE_S: Final = 30.0


def serve(
    *targets: AgentNames,
    host: Annotated[str, explain("The address to listen on; JOURNEYMAN_SERVE_TOKEN if others reach it.")] = _ADDRESS,
    port: Annotated[int, explain("The port to listen on (8000); 0 takes a free one.")] = _PORT,
    allow_host: HostNames = None,
    durable: Annotated[Flag, explain("Keep runs and chats in the store of the other commands.")] = False,
    authorize: Annotated[str | None, explain("What returns the owner of a request, or None: auth.py:owner.")] = None,
    max_concurrency: MaxConcurrency = _RUNS,
    grace: Seconds = _GRACE_S,
    shared: GivenOptions,
) -> int:
    """Serve agents behind HTTP: a JSON API, events as they happen, and AG-UI. /openapi.json says what there is.

    Where the environment has JOURNEYMAN_SERVE_TOKEN, clients must bring it: Authorization: Bearer … All who have it are
    one owner, who sees all runs; several owners take --authorize instead.
    """
    check_named(targets, "serve")
    token = _token(host, port, names := allow_host or (), authorize)
    Stdout()
    place = find_store(shared.store, makes=True) if durable or shared.store is not None else None
    with frame_of(shared, grace=grace) as frame:
        agents, owner_of = list(map(frame.loop.agent, targets)), None
        if authorize is not None:
            hint = "Give FILE:FUNCTION of a function of the request."
            owner_of = cast("Authorize", load_value("--authorize", authorize, callable, what="a function", hint=hint))
        made = create_app(
            agents,
            store=place and str(place.path),
            authorize=owner_of,
            runtime=frame.runtime,
            limits=ServeLimits(runs=max_concurrency),
        )
        guarded = HttpGuard(made, hosts=known_hosts(host, names), origins=names, token=token)
        if place is not None:
            # The server could only tell that it has ended.
            in_store(place, lambda durable: durable.list(limit=1), frame.loop)
        _serve(frame, made, guarded, (host, port), kept=place.shown if place else "memory")
    return 0


def _serve(frame: Frame, made: AgentApp, guarded: HttpGuard, place: tuple[str, int], *, kept: str) -> None:
    """Serve at an address and a port until a signal says that it is enough. `kept`: where runs are."""
    grace_s = frame.end.grace_s
    with listening_told(f"{place[0]}:{place[1]}", {}):
        listening = listen(*place)

    async def serve_agents(abort: Abort) -> None:
        with listening:
            address = f"http://{in_url(place[0])}:{listening.getsockname()[1]}"
            tell(f"serving at {address}; runs are kept in {kept}; Ctrl-C ends it")
            await serve_on(
                listening,
                guarded,
                abort=abort,
                connections=_CONNECTIONS,
                before_closing=lambda: made.drain(grace_s),
                closing=frame.end,
            )

    def hurry() -> None:
        asyncio.run_coroutine_threadsafe(made.drain(0.0), frame.loop.runner.get_loop())

    spare_collections()
    on_first = partial(tell_stopping, grace_s, "stopped")
    until_told(frame.loop, serve_agents, on_first, end=frame.end, hurry=hurry)


def _token(host: str, port: int, allow_host: Sequence[str], authorize: str | None) -> str | None:
    """Return the token that clients must bring, if they need one; a `Mistake` if it is not safe to listen there."""
    check_names(allow_host)
    token = os.environ.get(TOKEN) or None
    if token is not None and authorize is not None:
        text = f"Both {TOKEN} and --authorize say who is let in."
        raise Mistake(text, f"Leave out one: --authorize, or {TOKEN} from the environment.")
    for problem in address_problems(host, port, token, allow_host):
        if problem.code != "NO_TOKEN" or authorize is None:
            raise mistake_of(problem, _HINTS)
    return token
