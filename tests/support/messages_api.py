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
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, cast

import orjson

from tests.support.loopback import Loopback, Recorded
from tests.support.messages_answers import Answer, Policy, Raw, Reply, answer, by_turn, fault, raw
from tests.support.messages_delivery import Delivery
from tests.support.messages_json import Json, as_list, as_object
from tests.support.messages_memory import THINKING, Memory
from tests.support.messages_request import Request
from tests.support.messages_rules import judge, violations
from tests.support.messages_rules_settings import api_key
from tests.support.messages_schema import request_validator
from tests.support.messages_sse import body_parts, with_serial

__all__ = ["MessagesApi", "Recorded", "judge"]

Script: TypeAlias = Sequence[Reply] | Policy


class MessagesApi(Loopback[Answer]):
    """The server; see `Loopback`. `bind_thinking` adds the rule of the newest models that nothing before a thinking
    block changes."""

    def __init__(
        self,
        script: Script,
        *,
        judging: bool = True,
        recording: bool = True,
        accept_violations: bool = False,
        bind_thinking: bool = False,
        streaming: bool = True,
        bad_keys: Collection[str] = (),
        delay_s: float = 0.0,
        n_writes: int = 4,
        seed: int = 0,
        port: int = 0,
    ) -> None:
        super().__init__(
            script,
            _MessagesWire(bind_thinking=bind_thinking),
            judging=judging,
            recording=recording,
            accept_violations=accept_violations,
            streaming=streaming,
            bad_keys=bad_keys,
            delay_s=delay_s,
            n_writes=n_writes,
            seed=seed,
            port=port,
        )


class _MessagesWire:
    """The Messages API as `Loopback` sees it."""

    name = "Messages API"
    status_of_rule: Mapping[str, int] = MappingProxyType({"the_body_fits": 413, "a_key_is_given": 401})

    def __init__(self, *, bind_thinking: bool) -> None:
        self._bind_thinking = bind_thinking
        self._memory = Memory()

    def prepare(self) -> None:
        request_validator()

    def serves(self, method: str, path: str) -> bool:
        return (method, path) in (("POST", "/v1/messages"), ("POST", "/v1/messages/count_tokens"))

    def key(self, headers: dict[str, str]) -> str:
        return api_key(headers)

    def aside(self, recorded: Recorded) -> Raw | None:
        if not recorded.path.endswith("count_tokens"):
            return None
        return raw(orjson.dumps({"input_tokens": max(1, len(recorded.raw) // 4)}))

    def violations(self, recorded: Recorded) -> list[str]:
        request = Request(recorded.body, recorded.headers, len(recorded.raw), self._memory)
        return violations(request, bind_thinking=self._bind_thinking)

    def fault(self, status: int, message: str) -> Raw:
        return fault(status, message=message)

    def parts(self, answer: Answer, recorded: Recorded, delivery: Delivery) -> list[bytes]:
        return body_parts(
            answer, stream=delivery.stream, model=delivery.model, seed=delivery.seed, serial=delivery.serial
        )

    def remember(self, answer: Answer, recorded: Recorded) -> None:
        served = map(_mended, answer.content)
        content = orjson.loads(with_serial(orjson.dumps([*served]), recorded.serial))
        request = Request(recorded.body, recorded.headers, 0, self._memory)
        thinks = any(as_object(block).get("type") in THINKING for block in as_list(content))
        prefix = request.prefix() if thinks else ""
        taken = self._memory.repeated(content) and request.call_ids
        self._memory.remember(content, paused=answer.stop_reason == "pause_turn", prefix=prefix, taken=taken)


def _mended(block: Json) -> Json:
    """Return a block as it can come back: arguments that were no object are one."""
    return {**block, "input": {}} if isinstance(block.get("input"), str) else block


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
