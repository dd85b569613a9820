"""A strict loopback server for Anthropic's Messages API: it serves a script and refuses what the API refuses.

In a test it lives in the test's own event loop:

    async with MessagesApi([answer(tool_use("query", {"sql": "..."})), answer("done")]) as api:
        ...  # talk to api.url; leaving the block fails if a request broke a rule

Replies come from `messages_answers.py`, rules from `messages_rules.py`, everything else from `loopback.py`.
"""

from dataclasses import dataclass, field

import orjson

from tests.support.loopback import Loopback, Recorded
from tests.support.messages_answers import Answer, Raw, fault, raw
from tests.support.messages_json import Json, as_list, as_object
from tests.support.messages_memory import THINKING, Memory
from tests.support.messages_request import Request
from tests.support.messages_rules import judge, violations
from tests.support.messages_sse import body_parts, with_serial
from tests.support.strict_schema import messages_schema

__all__ = ["MessagesApi", "Recorded", "judge"]


@dataclass(eq=False)
class MessagesApi(Loopback[Answer]):
    """The server; see `Loopback`."""

    name = "Messages API"
    paths = ("/v1/messages", "/v1/messages/count_tokens")
    bind_thinking: bool = field(default=False, kw_only=True)
    """Adds the rule of the newest models that nothing before a thinking block changes."""
    _memory: Memory = field(default_factory=Memory, init=False)

    def prepare(self) -> None:
        messages_schema()

    def aside(self, recorded: Recorded) -> Raw | None:
        if not recorded.path.endswith("count_tokens"):
            return None
        return raw(orjson.dumps({"input_tokens": max(1, len(recorded.raw) // 4)}))

    def broken_rules(self, recorded: Recorded) -> list[str]:
        return violations(Request(recorded.body, recorded.headers, self._memory), bind_thinking=self.bind_thinking)

    def fault(self, status: int, message: str) -> Raw:
        return fault(status, message=message)

    def parts(self, answer: Answer, recorded: Recorded, *, stream: bool) -> list[bytes]:
        return body_parts(answer, stream=stream, model=recorded.model, seed=self.seed, serial=recorded.serial)

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
