"""`journeyman worker`: agents whose durable runs this process drives, until Ctrl-C or SIGTERM.

The first signal lets what is driven end, for a while, and then gives it back; the second gives it back at once.
"""

from __future__ import annotations

import asyncio
import math
import signal
from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

from journeyman.agent import Host
from journeyman.cli.app import Mistake
from journeyman.cli.durable import find_store, opened, tell
from journeyman.cli.loading import load_model
from journeyman.cli.opening import OPENING_S, AgentLoop
from journeyman.cli.run import Flag, Stdout
from journeyman.cli.show.log import log_shown
from journeyman.cli.show.screen import hearing, open_screen
from journeyman.durable.worker import Queue, Worker
from journeyman.errors import count, quoted

_SLOTS = 10
_GRACE_S = 30.0


def worker(
    *targets: Annotated[str, Parameter(name="FILE:AGENT")],
    store: Annotated[str | None, Parameter(name=("--store", "--durable"))] = None,
    queue: Annotated[list[str] | None, Parameter(negative=())] = None,
    slots: int = _SLOTS,
    grace: float = _GRACE_S,
    model: str | None = None,
    timeout: float = OPENING_S,
    debug: Flag = False,
) -> int:
    """Do durable runs that were started, that wait no more, or whose process has died.

    Start as many workers as there is work for, on as many machines as reach the store. Ctrl-C or SIGTERM: nothing more
    is begun, and what is not done in time is given back for another worker; once more: it is given back at once.

    Args:
        targets: The agents, as for run: agents.py:analyst. A run is done with the one that has its agent's name.
        store: A file or the URL of a database. Without it: JOURNEYMAN_STORE, or the nearest .journeyman/runs.db.
        queue: A queue to serve, and how many of its runs may go on at once in all workers together: --queue batch=4.
            May be repeated. Without it all queues are served.
        slots: How many runs go on here at once.
        grace: How many seconds what is driven has to end after the first signal.
        model: Use this model instead of the agents' own.
        timeout: How many seconds a function or context manager may take to give an agent.
        debug: Show the traceback of whatever the agents' own code raises.
    """
    if not targets:
        raise Mistake("No agent is named.", "Name one or more: journeyman worker agents.py:analyst")
    if not (grace >= 0 and math.isfinite(grace)):
        raise Mistake(f"--grace {grace:g} is no time.", "Give a number of seconds: --grace 30.")
    queues = _queues(queue or ())
    Stdout()
    place = find_store(store, makes=True)
    screen = open_screen(quiet=False)
    try:
        with log_shown(screen.say, debug=debug), AgentLoop(timeout) as loop:
            agents, host = [loop.agent(target) for target in targets], Host(model=load_model(model))

            async def served() -> None:
                async with opened(place) as durable:
                    try:
                        made = Worker(durable, agents=agents, slots=slots, queues=queues, host=host)
                    except ValueError as error:
                        raise Mistake(str(error), "See: journeyman worker --help") from error
                    names = ", ".join(agent.name for agent in agents)
                    tell(f"Serving {names} from {place.shown}, {count(slots, 'run')} at once. Ctrl-C ends it.")
                    await _until_told(made, grace)

            loop.run(served())
    finally:
        screen.close()
    return 0


async def _until_told(made: Worker, grace_s: float) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    working = asyncio.create_task(made.run(stop=stop, grace_s=grace_s))

    def heed() -> None:
        if stop.is_set():
            working.cancel()
        else:
            tell(f"Stopping: what is driven has {grace_s:g} s to end. Once more, and it is given back at once.")
            stop.set()

    def hear(number: signal.Signals) -> None:
        loop.call_soon_threadsafe(heed)

    with hearing(hear):
        await asyncio.wait({working})
    if not working.cancelled():
        working.result()


def _queues(given: Sequence[str]) -> dict[str, Queue]:
    """Return the queues that `NAME` or `NAME=AT_ONCE` mean.

    Raises:
        Mistake: one of them means none.
    """
    queues: dict[str, Queue] = {}
    for text in given:
        name, is_limited, number = text.partition("=")
        if not name or (is_limited and (not number.isdecimal() or int(number) < 1)):
            raise Mistake(f"--queue {quoted(text[:80])} is no queue.", "Give NAME, or NAME=AT_ONCE: --queue batch=4.")
        queues[name] = Queue(at_once=int(number) if is_limited else None)
    return queues
