"""A strict loopback server for OpenAI's APIs: it serves a script and refuses what the APIs refuse.

    async with OpenAiApi([answer(call("query", {"sql": "..."})), answer("done")]) as api:
        ...  # talk to f"{api.url}/v1"; leaving the block fails if a request broke a rule

`POST /v1/chat/completions` and `POST /v1/responses` are served from one script, JSON or SSE as asked. Replies come from
`openai_answers.py`, rules from `openai_rules.py`, everything else from `loopback.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import orjson

from tests.support.loopback import Loopback, Recorded
from tests.support.messages_answers import Raw
from tests.support.messages_delivery import Delivery
from tests.support.messages_json import as_list, as_object
from tests.support.messages_sse import with_serial
from tests.support.openai_answers import Answer, fault
from tests.support.openai_chat_sse import chat_parts
from tests.support.openai_request import Memory, Service
from tests.support.openai_responses_sse import output_items, responses_parts
from tests.support.openai_rules import judge
from tests.support.openai_schema import Api, request_validator
from tests.support.strict_request import api_key

__all__ = ["OpenAiApi", "Recorded", "Service", "judge"]

_PATHS: Mapping[str, Api] = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "responses",
    "/openai/v1/chat/completions": "chat",
    "/openai/v1/responses": "responses",
}
_ENCRYPTED = "reasoning.encrypted_content"


@dataclass(eq=False)
class OpenAiApi(Loopback[Answer]):
    """The server; see `Loopback`."""

    service: Service = field(default_factory=Service, kw_only=True)
    """How it differs from OpenAI's own."""

    def __post_init__(self) -> None:
        self.wire = _OpenAiWire(self.service)


class _OpenAiWire:
    """OpenAI's APIs as `Loopback` sees them."""

    name = "OpenAI API"
    status_of_rule: Mapping[str, int] = MappingProxyType({"a_key_is_given": 401})

    def __init__(self, service: Service) -> None:
        self._service = service
        self._memory = Memory()

    def prepare(self) -> None:
        request_validator("chat")
        request_validator("responses")

    def serves(self, method: str, path: str) -> bool:
        return method == "POST" and path in _PATHS

    def key(self, headers: dict[str, str]) -> str:
        return api_key(headers)

    def aside(self, recorded: Recorded) -> Raw | None:
        return None

    def violations(self, recorded: Recorded) -> list[str]:
        api = _PATHS[recorded.path]
        return judge(api, recorded.body, recorded.headers, memory=self._memory, service=self._service)

    def fault(self, status: int, message: str) -> Raw:
        return fault(status, message=message)

    def parts(self, answer: Answer, recorded: Recorded, delivery: Delivery) -> list[bytes]:
        api, stream, model, seed = _PATHS[recorded.path], delivery.stream, answer.model or delivery.model, delivery.seed
        asked = _usage_asked(recorded) if api == "chat" else _encrypted_asked(recorded)
        key = (api, stream, model, seed, asked)
        if key not in answer.encoded and api == "chat":
            field = self._service.reasoning_field
            answer.encoded[key] = chat_parts(
                answer, stream=stream, usage=asked, model=model, seed=seed, reasoning_field=field
            )
        elif key not in answer.encoded:
            answer.encoded[key] = responses_parts(answer, stream=stream, encrypted=asked, model=model, seed=seed)
        return [with_serial(part, delivery.serial) for part in answer.encoded[key]]

    def remember(self, answer: Answer, recorded: Recorded) -> None:
        if _PATHS[recorded.path] == "responses":
            items = output_items(answer, encrypted=_encrypted_asked(recorded))
            served = orjson.loads(with_serial(orjson.dumps(items), recorded.serial))
            self._memory.remember_items(served, stored=recorded.body.get("store") is not False)
            return
        content = orjson.loads(with_serial(orjson.dumps(answer.content), recorded.serial))
        calls = [block for block in content if block["type"] == "call"]
        self._memory.remember_calls({"id": call["id"], "function": call} for call in calls)


def _usage_asked(recorded: Recorded) -> bool:
    return as_object(recorded.body.get("stream_options")).get("include_usage") is True


def _encrypted_asked(recorded: Recorded) -> bool:
    return _ENCRYPTED in as_list(recorded.body.get("include"))
