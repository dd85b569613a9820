"""A strict loopback server for OpenAI's APIs: it serves a script and refuses what the APIs refuse.

    async with OpenAiApi([answer(call("query", {"sql": "..."})), answer("done")]) as api:
        ...  # talk to f"{api.url}/v1"; leaving the block fails if a request broke a rule

`POST /v1/chat/completions` and `POST /v1/responses` are served from one script, JSON or SSE as asked. Replies come from
`openai_answers.py`, rules from `openai_rules.py`, everything else from `loopback.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

from tests.support.loopback import Loopback, Recorded
from tests.support.messages_answers import Raw
from tests.support.messages_json import as_list, as_object
from tests.support.messages_sse import with_serial
from tests.support.openai_answers import Answer, fault
from tests.support.openai_request import Memory, Service
from tests.support.openai_rules import judge
from tests.support.openai_sse import as_said_by, chat_parts, output_items, responses_parts
from tests.support.strict_schema import Api, openai_schema

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

    name = "OpenAI API"
    paths = _PATHS.keys()
    of_servers = ("/props", "/health", "/v1/models", "/api/v0/models", "/api/ps", "/api/show")
    service: Service = field(default_factory=Service, kw_only=True)
    """How it differs from OpenAI's own."""
    _memory: Memory = field(default_factory=Memory, init=False)

    def prepare(self) -> None:
        openai_schema("chat")
        openai_schema("responses")

    def broken_rules(self, recorded: Recorded) -> list[str]:
        api = _PATHS[recorded.path]
        return judge(api, recorded.body, recorded.headers, memory=self._memory, service=self.service)

    def fault(self, status: int, message: str) -> Raw:
        return fault(status, message=message)

    def parts(self, answer: Answer, recorded: Recorded, *, stream: bool) -> list[bytes]:
        api, model, seed = _PATHS[recorded.path], answer.model or recorded.model, self.seed
        asked = _usage_asked(recorded) if api == "chat" else _encrypted_asked(recorded)
        key = (api, stream, model, seed, asked)
        if key not in answer.encoded and api == "chat":
            field = self.service.reasoning_field
            parts = chat_parts(answer, stream=stream, usage=asked, model=model, seed=seed, reasoning_field=field)
            answer.encoded[key] = as_said_by(self.service, parts, answer)
        elif key not in answer.encoded:
            answer.encoded[key] = responses_parts(answer, stream=stream, encrypted=asked, model=model, seed=seed)
        return [with_serial(part, recorded.serial) for part in answer.encoded[key]]

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
