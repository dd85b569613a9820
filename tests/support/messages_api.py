"""A strict loopback server for Anthropic's Messages API: it serves a script and refuses what the API refuses.

In a test it lives in the test's own event loop:

    async with MessagesApi([answer(tool_use("query", {"sql": "..."})), answer("done")]) as api:
        ...  # talk to api.url; leaving the block fails if a request broke a rule

As a process of its own, for benchmarks and command lines:

    python -m tests.support.messages_api --script script.json

It prints its port, serves until it is interrupted, and then exits with 1 if a request broke a rule. The
script is a JSON list of replies: a text, {"content": [...]} with arguments of `answer`, or {"status": 529}
with arguments of `fault`. Replies come from `messages_answers.py`, rules from `messages_rules.py`.
"""

import argparse
import asyncio
import inspect
import signal
import sys
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias, cast

import orjson
from aiohttp import web

from tests.support.messages_answers import Answer, Policy, Reply, answer, by_turn, fault, raw
from tests.support.messages_delivery import Delivery, send
from tests.support.messages_json import Json, as_list, as_object, as_text
from tests.support.messages_memory import Memory
from tests.support.messages_request import Request
from tests.support.messages_rules import judge, violations
from tests.support.messages_rules_settings import MAX_BODY_BYTES, api_key
from tests.support.messages_schema import request_validator
from tests.support.messages_sse import with_serial

__all__ = ["MessagesApi", "Recorded", "judge"]

Script: TypeAlias = Sequence[Reply] | Policy

_STATUS_OF_RULE = {"the_body_fits": 413, "a_key_is_given": 401}
_MAX_READ_BYTES = 4 * MAX_BODY_BYTES


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


class MessagesApi:
    """The server; an async context manager.

    Leaving it raises AssertionError with all violations, unless `accept_violations` is set or another error
    is on its way. `bind_thinking` adds the rule of the newest models that nothing before a thinking block
    changes. A stream leaves in about `n_writes` writes, torn at arbitrary but seeded places. For benchmarks,
    `judging=False` serves without looking and `recording=False` keeps no requests.
    """

    def __init__(
        self,
        script: Script,
        *,
        judging: bool = True,
        recording: bool = True,
        accept_violations: bool = False,
        bind_thinking: bool = False,
        bad_keys: Collection[str] = (),
        delay_s: float = 0.0,
        n_writes: int = 4,
        seed: int = 0,
        port: int = 0,
    ) -> None:
        self.url = ""
        self.requests: list[Recorded] = []
        self.violations: list[str] = []
        self.in_flight = 0
        self.peak_in_flight = 0
        self._script = script
        self._judging = judging
        self._recording = recording
        self._accept_violations = accept_violations
        self._bind_thinking = bind_thinking
        self._bad_keys = frozenset(bad_keys)
        self._delay_s = delay_s
        self._n_writes = n_writes
        self._seed = seed
        self._port = port
        self._n_taken = 0
        self._serials = count(1)
        self._memory = Memory()
        self._changed = asyncio.Event()

    @property
    def n_unserved(self) -> int:
        """How many replies of a list are still to be served."""
        return 0 if callable(self._script) else len(self._script) - self._n_taken

    async def until(self, ready: Callable[[], bool]) -> None:
        """Wait for a condition on this server, such as `lambda: len(api.requests) == 2`."""
        while not ready():
            self._changed.clear()
            await self._changed.wait()

    async def __aenter__(self) -> "MessagesApi":
        if self._judging:
            request_validator()
        app = web.Application(client_max_size=_MAX_READ_BYTES)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=0.01, handle_signals=False
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()
        if self.violations and error is None and not self._accept_violations:
            raise AssertionError("The Messages API was used wrongly:\n" + "\n".join(self.violations))

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        recorded = await self._record(request)
        with self._counted(recorded):
            reply = self._refusal(recorded) or await self._reply(recorded)
            delivery = Delivery(
                serial=recorded.serial,
                stream=recorded.body.get("stream") is True,
                model=as_text(recorded.body.get("model")),
                n_writes=self._n_writes,
                seed=self._seed,
                delay_s=self._delay_s,
            )
            return await send(request, reply, delivery)

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
        if self._recording:
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

    def _refusal(self, recorded: Recorded) -> Reply | None:
        endpoint = (recorded.method, recorded.path)
        if endpoint not in (("POST", "/v1/messages"), ("POST", "/v1/messages/count_tokens")):
            return self._violated(recorded, [f"path: {recorded.method} {recorded.path} is not served"], 404)
        if api_key(recorded.headers) in self._bad_keys:
            return fault(401, message="invalid x-api-key")
        if not self._judging or recorded.path.endswith("count_tokens"):
            return None
        if not recorded.body:
            return self._violated(recorded, ["json: the request body is not valid JSON"], 400)
        request = Request(recorded.body, recorded.headers, len(recorded.raw), self._memory)
        if found := violations(request, bind_thinking=self._bind_thinking):
            broken = [violation.partition(":")[0] for violation in found]
            status = next((_STATUS_OF_RULE[rule] for rule in broken if rule in _STATUS_OF_RULE), 400)
            return self._violated(recorded, found, status)
        return None

    def _violated(self, recorded: Recorded, found: list[str], status: int) -> Reply:
        recorded.violations += found
        self.violations += [f"request {recorded.serial}: {violation}" for violation in found]
        return fault(status, message="; ".join(found))

    async def _reply(self, recorded: Recorded) -> Reply:
        if recorded.path.endswith("count_tokens"):
            return raw(orjson.dumps({"input_tokens": max(1, len(recorded.raw) // 4)}))
        try:
            reply = await self._next(recorded.body)
        except Exception as error:  # noqa: BLE001  a failing script becomes an answer and a violation
            return self._violated(recorded, [f"script: {type(error).__name__}: {error}"], 500)
        if isinstance(reply, Answer) and self._judging:
            self._remember(reply, recorded)
        return reply

    async def _next(self, body: Json) -> Reply:
        if callable(self._script):
            reply = self._script(body)
            return await reply if inspect.isawaitable(reply) else reply
        if not self.n_unserved:
            raise LookupError(f"all {self._n_taken} replies have been served")
        self._n_taken += 1
        return self._script[self._n_taken - 1]

    def _remember(self, reply: Answer, recorded: Recorded) -> None:
        """Keep the answer before it is sent: the next request may come before this one is done."""
        if reply.twist is not None and not reply.twist.goes_on:
            return
        content = orjson.loads(with_serial(orjson.dumps(reply.content), recorded.serial))
        request = Request(recorded.body, recorded.headers, 0, self._memory)
        prefix = request.prefix() if self._bind_thinking else ""
        self._memory.remember(content, paused=reply.stop_reason == "pause_turn", prefix=prefix)


def _parsed(sent: bytes) -> Json:
    try:
        return as_object(orjson.loads(sent))
    except orjson.JSONDecodeError:
        return {}


def _scripted(item: object) -> Reply:
    if isinstance(item, str):
        return answer(item)
    given = cast("dict[str, Any]", dict(as_object(item)))
    if "status" in given:
        return fault(**given)
    blocks = cast("list[Json | str]", given.pop("content"))
    return answer(*blocks, **given)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.support.messages_api")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", type=Path, required=True, help="a JSON list of replies")
    parser.add_argument("--by-turn", action="store_true", help="every conversation walks through the script")
    parser.add_argument("--no-judging", action="store_true")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each reply")
    parser.add_argument("--writes", type=int, default=1, help="writes per stream")
    return parser.parse_args()


async def _serve(arguments: argparse.Namespace) -> list[str]:
    script = [_scripted(item) for item in as_list(orjson.loads(arguments.script.read_bytes()))]
    interrupted = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupted.set)
    async with MessagesApi(
        by_turn(script) if arguments.by_turn else script,
        judging=not arguments.no_judging,
        recording=False,
        accept_violations=True,
        delay_s=arguments.delay,
        n_writes=arguments.writes,
        port=arguments.port,
    ) as api:
        sys.stdout.write(f"{api.url.rpartition(':')[2]}\n")
        sys.stdout.flush()
        await interrupted.wait()
    return api.violations


def main() -> int:
    """Serve a script from the command line; return the exit code."""
    found = asyncio.run(_serve(_arguments()))
    sys.stderr.write("".join(f"{violation}\n" for violation in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
