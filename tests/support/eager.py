"""Event loops whose tasks take their first step before `create_task` returns.

Python 3.12 and newer have such a task factory, and Textual sets it; before that the same order is made by hand, of
asyncio's own task in Python.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_eagerly(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Do the work in an event loop of its own, in which tasks are eager."""

    async def work_eagerly() -> T:
        loop: Any = asyncio.get_running_loop()
        loop.set_task_factory(getattr(asyncio, "eager_task_factory", _start_eagerly))
        return await work()

    return asyncio.run(work_eagerly())


def make_eager_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop with eager tasks. Needs Python 3.12: what is made by hand is too rough for all tests."""
    loop = asyncio.new_event_loop()
    loop.set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009 - see above
    return loop


def _start_eagerly(loop: Any, coroutine: Coroutine[Any, Any, Any], **given: Any) -> asyncio.Task[Any]:  # noqa: ANN401 - asyncio's own
    tasks: Any = asyncio.tasks
    later: Callable[..., Any] = loop.call_soon

    def do_nothing(*_: object, **__: object) -> None: ...

    loop.call_soon = do_nothing  # the first step is taken here, not in the next turn
    try:
        task = tasks._PyTask(coroutine, loop=loop, **given)
    finally:
        loop.call_soon = later
    above = asyncio.current_task(loop)
    if above is not None:
        tasks._leave_task(loop, above)
    try:
        task._context.run(task._Task__step)
    finally:
        if above is not None:
            tasks._enter_task(loop, above)
    return task
