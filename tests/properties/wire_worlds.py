"""Worlds over HTTP: the same scripts, said by the strict server in a thread of its own, heard by the real adapter.

The client's event loop has a clock that runs fast, so that waits and deadlines take next to no time.
"""

import asyncio
import json
import selectors
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import orjson

from journeyman import Budget, Limits, Text, Usage
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.models.transport import Timeouts
from journeyman.types import Block, Opaque, Price, RedactedThinking, Thinking, ToolUse
from tests.properties.played_model import FaultKind, Turn
from tests.properties.world import Act, Site, World
from tests.properties.world_run import WorldRun
from tests.support import messages_answers as messages
from tests.support.counting_loop import CountingRealLoop
from tests.support.messages_answers import Answer, Reply
from tests.support.messages_json import Json
from tests.support.run_record import Reply as Heard
from tests.support.run_record import RunRecord
from tests.support.servers import MessagesApi

T = TypeVar("T")

SPEED = 100.0
"""Seconds of the fast clock in one real second."""
_FOR_EVER = Timeouts(connect_s=1e6, idle_s=1e6)


class HurriedLoop(CountingRealLoop):
    """An event loop whose clock runs fast; input and output are real."""

    def __init__(self) -> None:
        self.began_s = 0.0
        super().__init__(_Hurried())
        self.began_s = super().time()

    def time(self) -> float:
        return self.began_s + (super().time() - self.began_s) * SPEED


class _Hurried(selectors.DefaultSelector):
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(timeout if timeout is None or timeout <= 0 else timeout / SPEED)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return super().get_map()


def on_hurried_loop(scenario: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `scenario` in a hurried loop of its own."""
    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        return runner.run(scenario())


class ServerThread:
    """A thread with an event loop, for servers: so that the client's loop holds nothing but the client."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="servers", daemon=True)
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Do `work` there, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@dataclass(eq=False)
class Server:
    """Says a script, whoever asks, and keeps what was said."""

    turns: Sequence[Turn]
    price: Price | None
    said: list[Heard] = field(default_factory=list[Heard])

    def reply(self, body: Json) -> Reply:
        turn = self.turns[min(len(self.said), len(self.turns) - 1)]
        number = len(self.said) + 1
        usage = turn.usage if self.price is None else replace(turn.usage, cost=self.price.of(turn.usage))
        content = [_as_heard(block, f"{number}_{place}") for place, block in enumerate(turn.content)]
        self.said.append(Heard(name=f"script-{number}", content=content, stop_reason=turn.stop_reason, usage=usage))
        return messages.late(_said(turn, number), seconds=turn.slow_s / SPEED)


@dataclass(frozen=True, slots=True)
class Overheard:
    """A run over HTTP."""

    record: RunRecord
    violations: list[str]
    """Every rule of the API that a request broke."""
    n_steps: int
    """Of the client's event loop."""


def run_over_http(servers: ServerThread, world: World, *, how: str = "", before_step: int = 0) -> Overheard:
    """Run the world; stop it before a step of the client's event loop, if it says how."""
    world = fit_for_the_wire(world)
    server = Server(world.turns, world.price)
    api = MessagesApi(server.reply, recording=False, accept_violations=True)
    servers.do(api.__aenter__())
    try:
        model = AnthropicModel(
            "claude-sonnet-4-6", api_key="k", base_url=api.url, timeouts=_FOR_EVER, price=world.price
        )
        record, n_steps = on_hurried_loop(lambda: _stopped(WorldRun(world, model), how, before_step))
    finally:
        servers.do(api.__aexit__(None, None, None))
    record.heard(server.said)
    return Overheard(record, api.violations, n_steps)


async def _stopped(world_run: WorldRun, how: str, before_step: int) -> tuple[RunRecord, int]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, HurriedLoop)
    loop.count_from_here()
    if how:
        loop.before_step(before_step, lambda: world_run.actor.stop(how))
    return await world_run.run(), loop.steps


_STOP_REASONS = {"context_window": "model_context_window_exceeded", "other": "a_new_reason"}
_STATUSES: dict[FaultKind, int] = {
    "rate_limited": 429,
    "overloaded": 529,
    "timeout": 504,
    "auth": 401,
    "quota": 402,
    "not_found": 404,
    "bad_request": 400,
    "not_recorded": 400,  # said by no server
    "context_overflow": 413,
    "content_filtered": 400,
    "unknown": 418,
}


def _said(turn: Turn, number: int) -> Reply:
    blocks = [_block(block, f"{number}_{place}") for place, block in enumerate(turn.content)]
    whole = messages.answer(
        *(block for block in blocks if block is not None),
        stop_reason=_STOP_REASONS.get(turn.stop_reason, turn.stop_reason),
        usage=_counts(turn.usage),
        model=f"script-{number}",
        id=f"msg_{number}",
    )
    return whole if turn.fault is None else _faulty(turn, whole)


def _faulty(turn: Turn, whole: Answer) -> Reply:
    """Return an answer that fails: within, if some of it comes before, or instead of it."""
    assert turn.fault is not None
    made = _broken(whole, turn.fault.kind, turn.fault.after)
    if made is not None:
        return made
    waits = {} if turn.fault.retry_after_s is None else {"retry-after": f"{turn.fault.retry_after_s:g}"}
    return messages.fault(_STATUSES[turn.fault.kind], headers=waits)


def _broken(whole: Answer, kind: FaultKind, n_events: int) -> Reply | None:
    garbage = b"event: content_block_delta\ndata: {garbage\n\n"
    ways: dict[FaultKind, Callable[[], Reply]] = {
        "hangs": lambda: messages.stall(whole, after_events=n_events),
        "ends": lambda: messages.cut(whole, after_events=n_events, ending="end"),
        "stream_cut": lambda: messages.cut(whole, after_events=n_events, ending="close"),
        "network": lambda: messages.cut(whole, after_events=n_events, ending="reset"),
        "stream_idle": lambda: messages.cut(whole, after_events=n_events, ending="close"),
        "raises": messages.html_page,
        "raises a group": lambda: messages.insert(whole, garbage, after_events=n_events),
        "leaks a CancelledError": lambda: messages.raw(b"\xff\xfe garbage", content_type="text/event-stream"),
    }
    if kind in ways:
        return ways[kind]()
    within = "rate_limit_error" if kind == "rate_limited" else "overloaded_error"
    return messages.broken_off(whole, after_events=n_events, error_type=within, message=kind) if n_events > 2 else None


def _counts(usage: Usage) -> dict[str, object]:
    counts: dict[str, object] = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    counts["cache_read_input_tokens"] = usage.cache_read_tokens or 0
    counts["cache_creation_input_tokens"] = usage.cache_write_tokens or 0
    return counts


def _block(block: Block, place: str) -> Json | None:
    match block:
        case Text(words):
            return messages.text(words)
        case Thinking(words, signature):
            return messages.thinking(words, signature=signature)
        case RedactedThinking(data):
            return messages.redacted_thinking(data)
        case ToolUse():
            return messages.tool_use(block.name, orjson.loads(block.input_json), id=f"toolu_{place}")
        case Opaque(json=raw_json):
            return orjson.loads(raw_json)
        case _:
            return None


def _as_heard(block: Block, place: str) -> Block:
    if not isinstance(block, ToolUse):
        return block
    return ToolUse(f"toolu_{place}", block.name, json.dumps(block.input) if block.input else "{}")


def fit_for_the_wire(world: World) -> World:
    """Return the world without what no server can say, and without waiting for ever."""
    has_tools = bool(world.tools) or world.output != "text"
    turns = tuple(_fit(turn, number, has_tools=has_tools) for number, turn in enumerate(world.turns))
    changes: dict[str, Any] = {
        name: _unhung(value) for name in World.__dataclass_fields__ if isinstance(value := getattr(world, name), Site)
    }
    several: dict[str, Any] = {
        "turns": turns,
        "tools": tuple(replace(plan, acts=tuple(map(_unhung_act, plan.acts))) for plan in world.tools),
        "validators": tuple(map(_unhung, world.validators)),
        "tool_middleware": tuple(map(_unhung, world.tool_middleware)),
        "callbacks": {name: _unhung(site) for name, site in world.callbacks.items()},
    }
    if world.reflection is not None:
        several["reflection"] = replace(world.reflection, site=_unhung(world.reflection.site))
    several["limits"] = _unhurried(world.limits, hangs=any(turn.fault and turn.fault.kind == "hangs" for turn in turns))
    return replace(world, **changes, **several)


def _unhurried(limits: Limits, *, hangs: bool) -> Limits:
    """Return the limits with time enough for what is real: sockets, and the machine."""
    seconds = 20.0 if hangs or limits.seconds is not None else None
    each = limits.per_attempt or Budget()
    each = Budget(tokens=each.tokens, cost=each.cost, calls=each.calls)
    return replace(limits, seconds=seconds, per_attempt=each)


def _unhung(site: Site) -> Site:
    return replace(site, acts=tuple(map(_unhung_act, site.acts)))


def _unhung_act(act: Act) -> Act:
    return Act("slow", 1.0) if act.kind == "hang" else act


def _fit(turn: Turn, number: int, *, has_tools: bool) -> Turn:
    sayable = [block for block in turn.content if has_tools or not isinstance(block, ToolUse)]  # as models are
    content = tuple(fitting for block in sayable if (fitting := _fit_block(block, number)) is not None)
    read, written = turn.usage.cache_read_tokens or 0, turn.usage.cache_write_tokens or 0
    usage = replace(turn.usage, cache_read_tokens=read, cache_write_tokens=written, reasoning_tokens=None)
    return replace(turn, content=content, usage=usage)


def _fit_block(block: Block, number: int) -> Block | None:
    match block:
        case Text(words):
            return Text(words.encode(errors="replace").decode())
        case Thinking(words):
            return Thinking(f"{words} {number}", f"signature{number}", "anthropic")
        case ToolUse():
            written = block.input_json if _is_plain_object(block.input_json) else "{}"
            return replace(block, input_json=written, name=block.name if block.name.isalpha() else "unknown")
        case Opaque(provider="anthropic"):
            return replace(block, json=block.json.replace("srvtoolu_1", f"srvtoolu_of_{number}"))
        case RedactedThinking():
            return block
        case _:
            return None


def _is_plain_object(written: str) -> bool:
    """Tell whether it is an object that the server can hold: without integers of more than 64 bits."""
    try:
        return isinstance(given := orjson.loads(written), dict) and given == json.loads(written)
    except orjson.JSONDecodeError:
        return False
