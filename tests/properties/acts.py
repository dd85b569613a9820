"""What the functions of a generated world do: wait, raise, leak, swallow, stop the run, and what they return."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle

from journeyman import Abort, Rejected, Text, ToolContext, ToolResult
from tests.properties.played_model import HANG_S
from tests.properties.world import Act, ActKind, Site
from tests.support.counting_loop import CountingLoop, the_counting_loop
from tests.support.run_record import RunRecord


class Mute(Exception):
    """An error whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@dataclass(slots=True, eq=False)
class Actor:
    """Does what acts say. Whoever waits in a thread waits for `released`."""

    abort: Abort = field(default_factory=Abort)
    released: threading.Event = field(default_factory=threading.Event)
    task: asyncio.Task[RunRecord] | None = None
    record: RunRecord | None = None
    _scripts: dict[object, Iterator[Act]] = field(default_factory=dict[object, Iterator[Act]])

    def begin(self) -> None:
        """Begin another run: with a signal of its own, and every script from the start."""
        self.abort, self.released = Abort(), threading.Event()
        self.task = self.record = None
        self._scripts.clear()

    def next_of(self, acts: Sequence[Act]) -> Callable[[], Act]:
        """Return what gives one act after the other, and then all again."""
        key = object()
        return lambda: next(self._scripts.setdefault(key, cycle(acts)))

    def stop(self, how: str) -> None:
        """Stop the run, from wherever this is called; but tasks are cancelled in the loop's thread only."""
        if self.record is not None and self.record.stopped_at is None:
            self.record.stopped_at = len(self.record.events)
        if how == "abort":
            self.abort.abort("the world stopped it")
        elif self.task is not None and self.record is not None:
            self.record.was_cancelled = True
            self.task.cancel()

    def do(self, act: Act) -> None:
        """Do it without waiting: what takes long holds up the whole loop."""
        match act.kind:
            case "slow" | "hang" | "swallow":
                if loop := the_counting_loop():
                    loop.now_s += act.seconds
            case "abort" | "cancel":
                self.stop(act.kind)
            case _:
                raise_for(act.kind)

    async def do_async(self, act: Act) -> None:
        """Do it, and wait where it waits."""
        match act.kind:
            case "slow":
                await asyncio.sleep(act.seconds)
            case "hang":
                await asyncio.sleep(HANG_S)
            case "swallow" | "convert":
                await self._survive(act)
            case "abort" | "cancel":
                self.stop(act.kind)
                await asyncio.sleep(0)
            case _:
                await asyncio.sleep(0)
                raise_for(act.kind)

    async def _survive(self, act: Act) -> None:
        """Wait, and take the first cancellation for something else."""
        try:
            await asyncio.sleep(act.seconds)
        except asyncio.CancelledError as error:
            if self.record is not None:
                self.record.was_swallowed = True
            if act.kind == "convert":
                raise ValueError("it was cancelled") from error

    def release(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the parked threads go, and wait until they have delivered what they have."""
        self.released.set()
        if isinstance(loop, CountingLoop):
            while loop.parked:
                loop.parked.pop().join()

    def do_in_thread(self, act: Act, loop: asyncio.AbstractEventLoop) -> None:
        """Do it outside of the loop: what hangs is parked there, until the test is over."""
        match act.kind:
            case "hang" | "slow" | "swallow":
                if isinstance(loop, CountingLoop) and not self.released.is_set():
                    loop.parked.add(threading.current_thread())
                    self.released.wait()
            case "abort":
                self.stop("abort")
            case "cancel":
                loop.call_soon_threadsafe(self.stop, "cancel")
            case _:
                raise_for(act.kind)

    def function(self, site: Site, give: Callable[..., object]) -> Callable[..., object]:
        """Return a function that does what the site says, and then returns what `give` makes of act and arguments."""
        next_act = self.next_of(site.acts)

        def sync(*arguments: object) -> object:
            act = next_act()
            self.do(act)
            return give(act, *arguments)

        return sync if site.form == "sync" else self.coroutine_function(site, give)

    def coroutine_function(self, site: Site, give: Callable[..., object]) -> Callable[..., Awaitable[object]]:
        """Return an async function, whatever the form of the site."""
        next_act = self.next_of(site.acts)

        async def asynchronous(*arguments: object) -> object:
            act = next_act()
            await self.do_async(act)
            return give(act, *arguments)

        return asynchronous


def raise_for(kind: ActKind) -> None:
    """Raise what an act of this kind raises, if anything."""
    match kind:
        case "raise" | "convert":
            raise ValueError("it does not work")
        case "raise blank":
            raise ValueError("  ")
        case "raise mute":
            raise Mute
        case "raise group":
            raise ExceptionGroup("both failed", [ValueError("one"), ExceptionGroup("inside", [KeyError("two")])])
        case "raise base group":
            raise BaseExceptionGroup("both failed", [asyncio.CancelledError("one"), ValueError("two")])
        case "raise timeout":
            raise TimeoutError("of its own")
        case "reject":
            raise Rejected("not good enough", path=("total",))
        case "leak":
            raise asyncio.CancelledError("of a task inside")
        case _:
            pass


def tool_value(act: Act) -> object:
    """Return what a tool returns whose act this is."""
    make = _TOOL_VALUES.get(act.kind)
    return f"done {act.kind}" if make is None else make()


def _circular() -> object:
    value: list[object] = []
    value.append(value)
    return value


async def _late() -> str:
    return "late"


_TOOL_VALUES: dict[ActKind, Callable[[], object]] = {
    "nothing": lambda: None,
    "blank": lambda: " \n",
    "value": lambda: {"rows": [1, 2.5, None, True], "name": "ü"},
    "not a number": lambda: [float("nan"), float("inf")],
    "huge": lambda: "x" * 20_000,
    "blocks": lambda: [Text("a picture:"), Text(" "), "of a journeyman"],
    "error result": lambda: ToolResult("it cannot be", is_error=True),
    "surrogate": lambda: "half \ud83d of a pair",
    "circular": _circular,
    "object": lambda: {"is": object},
    "generator": lambda: (number for number in range(3)),
    "coroutine": lambda: _late(),
}


def use_context(act: Act, context: ToolContext) -> None:
    """Do what acts do with a tool's context."""
    match act.kind:
        case "state":
            context.set_run_state({"last": context.tool_use_id})
            context.set_attempt_state(context.iteration)
        case "bad state":
            context.set_run_state(threading.Lock())
        case "progress":
            context.progress("half", 0.5)
        case _:
            return
