"""A strict loopback server for Anthropic's Messages API: it serves a script and refuses what the API refuses.

In a test it lives in the test's own event loop:

    async with MessagesApi([answer(tool_use("query", {"sql": "..."})), answer("done")]) as api:
        ...  # talk to api.url; leaving the block fails if a request broke a rule

Replies come from `messages_answers.py`, rules from `messages_rules.py`, everything else from `loopback.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import orjson

from tests.support.loopback import Loopback, Recorded
from tests.support.messages_answers import Answer, Raw, fault, raw
from tests.support.messages_delivery import Delivery
from tests.support.messages_json import Json, as_list, as_object
from tests.support.messages_memory import THINKING, Memory
from tests.support.messages_request import Request
from tests.support.messages_rules import judge, violations
from tests.support.messages_schema import request_validator
from tests.support.messages_sse import body_parts, with_serial
from tests.support.strict_request import api_key

__all__ = ["MessagesApi", "Recorded", "judge"]


@dataclass(eq=False)
class MessagesApi(Loopback[Answer]):
    """The server; see `Loopback`."""

    bind_thinking: bool = field(default=False, kw_only=True)
    """Adds the rule of the newest models that nothing before a thinking block changes."""

    def __post_init__(self) -> None:
        self.wire = _MessagesWire(bind_thinking=self.bind_thinking)


class _MessagesWire:
    """The Messages API as `Loopback` sees it."""

    name = "Messages API"
    status_of_rule: Mapping[str, int] = MappingProxyType({"a_key_is_given": 401})

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
        request = Request(recorded.body, recorded.headers, self._memory)
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
        request = Request(recorded.body, recorded.headers, self._memory)
        thinks = any(as_object(block).get("type") in THINKING for block in as_list(content))
        prefix = request.prefix() if thinks else ""
        taken = self._memory.repeated(content) and request.call_ids
        self._memory.remember(content, paused=answer.stop_reason == "pause_turn", prefix=prefix, taken=taken)


def _mended(block: Json) -> Json:
    """Return a block as it can come back: arguments that were no object are one."""
    return {**block, "input": {}} if isinstance(block.get("input"), str) else block
