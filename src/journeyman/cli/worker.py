"""`journeyman worker`: agents whose durable runs this process drives, until Ctrl-C or SIGTERM.

The first signal lets what is driven end, for a while, and then gives it back; the second gives it back at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Annotated, cast

from journeyman.cancellation import Abort, wait_until_ended
from journeyman.cli.app import Mistake, explain_errors
from journeyman.cli.durable import find_store, open_durable, tell
from journeyman.cli.load_agent import load_value
from journeyman.cli.options import AgentNames, GivenOptions, MaxConcurrency, Seconds, Texts, explain
from journeyman.cli.run import Stdout
from journeyman.cli.serving import check_named, frame_of, tell_stopping, until_told
from journeyman.durable.dispatch import Dispatcher
from journeyman.durable.worker import Queue, Worker
from journeyman.errors import count, quoted

_SLOTS = 10
_GRACE_S = 30.0
_PARTS_OF_A_DISPATCHER = ("lease_s", "joins", "drive_s", "setup", "enqueue", "drop", "unknown", "serve")


def worker(
    *targets: AgentNames,
    queue: Annotated[Texts, explain("Serve this queue, in all workers so many runs: batch=4; repeatable.")] = None,
    dispatcher: Annotated[
        str | None, explain("What brings the runs instead of Procrastinate: celery.py:dispatcher.")
    ] = None,
    max_concurrency: MaxConcurrency = _SLOTS,
    grace: Seconds = _GRACE_S,
    shared: GivenOptions,
) -> int:
    """Do durable runs that were started, that wait no more, or whose process has died.

    Start as many workers as there is work for, on as many machines as reach the store. Ctrl-C or SIGTERM: nothing more
    is begun, and what is not done in time is given back for another worker; once more: it is given back at once.
    """
    check_named(targets, "worker")
    queues = _queues(queue or ())
    brings = None if dispatcher is None else _dispatcher(dispatcher)
    Stdout()
    place = find_store(shared.store, makes=True)
    with frame_of(shared, grace=grace) as frame:
        agents = [frame.loop.agent(target, mode=shared.mode) for target in targets]
        counts = None if frame.telemetry is None else frame.telemetry.hear
        made = partial(Worker, agents=agents, max_concurrency=max_concurrency, queues=queues, runtime=frame.runtime)
        names = ", ".join(agent.name for agent in agents)
        ready = f"Serving {names} from {place.shown}, {count(max_concurrency, 'run')} at once. Ctrl-C ends it."
        hurry = Abort()

        async def serve_store(abort: Abort) -> None:
            async with open_durable(place, dispatcher=brings, on_event=counts) as durable:
                with explain_errors("See: journeyman worker --help"):
                    serving = made(durable)
                tell(ready)
                stop = asyncio.Event()
                abort.subscribe(stop.set)
                driving = asyncio.create_task(serving.run(stop=stop, grace_s=grace))
                hurry.subscribe(driving.cancel)  # what it drives is given back
                await wait_until_ended(driving)
                if not driving.cancelled():
                    driving.result()

        on_first = partial(tell_stopping, grace, "given back")
        until_told(frame.loop, serve_store, on_first, end=frame.end, hurry=hurry.abort)
    return 0


def _dispatcher(named: str) -> Dispatcher:
    """Return the dispatcher that `FILE:NAME` means."""
    hint = (
        "Leave it out for Procrastinate, or give FILE:NAME of an object: examples/dispatchers has one for PgQueuer, for"
        " Celery and for Temporal."
    )
    if ":" not in named:
        raise Mistake(f"--dispatcher {quoted(named[:80])} is none.", hint)

    def has_parts(value: object) -> bool:
        return all(hasattr(value, each) for each in _PARTS_OF_A_DISPATCHER)

    return cast("Dispatcher", load_value("--dispatcher", named, has_parts, what="a dispatcher", hint=hint))


def _queues(given: Sequence[str]) -> dict[str, Queue]:
    """Return the queues that `NAME` or `NAME=AT_ONCE` mean."""
    queues: dict[str, Queue] = {}
    for text in given:
        name, is_limited, number = text.partition("=")
        if not name or (is_limited and (not number.isdecimal() or int(number) < 1)):
            raise Mistake(f"--queue {quoted(text[:80])} is no queue.", "Give NAME, or NAME=AT_ONCE: --queue batch=4.")
        queues[name] = Queue(max_concurrency=int(number) if is_limited else None)
    return queues
