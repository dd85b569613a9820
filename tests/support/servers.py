"""The strict loopback servers: each serves a script and refuses what its API refuses.

In a test a server lives in the test's own event loop:

    async with MessagesApi([answer(tool_use("query", {"sql": "..."})), answer("done")]) as api:
        ...  # talk to api.url; leaving the block fails if a request broke a rule

Replies come from `messages_answers.py`, `openai_answers.py` and `gemini_answers.py`, rules from `messages_rules.py`,
`openai_rules.py` and `gemini_rules.py`, everything else from `loopback.py`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

from tests.support import gemini_answers, gemini_rules, messages_answers, messages_rules, openai_answers, openai_rules
from tests.support.loopback import Loopback, Recorded
from tests.support.messages_answers import Raw
from tests.support.messages_json import Json, as_list, as_object
from tests.support.messages_memory import THINKING, Memory
from tests.support.messages_sse import body_parts, with_serial
from tests.support.openai_rules import Service
from tests.support.openai_sse import as_said_by, chat_parts, output_items, responses_parts
from tests.support.strict_schema import Api, gemini_schema, messages_schema, openai_schema

__all__ = ["GeminiApi", "MessagesApi", "OpenAiApi", "Recorded", "Service"]


@dataclass(eq=False)
class MessagesApi(Loopback[messages_answers.Answer]):
    """Anthropic's Messages API."""

    name = "Messages API"
    paths = ("/v1/messages",)
    bind_thinking: bool = field(default=False, kw_only=True)
    """Adds the rule of the newest models that nothing before a thinking block changes."""
    _memory: Memory = field(default_factory=Memory, init=False)

    def prepare(self) -> None:
        messages_schema()

    def broken_rules(self, recorded: Recorded) -> list[str]:
        bound = self.bind_thinking
        return messages_rules.judge(recorded.body, recorded.headers, memory=self._memory, bind_thinking=bound)

    def fault(self, status: int, message: str) -> Raw:
        return messages_answers.fault(status, message=message)

    def parts(self, answer: messages_answers.Answer, recorded: Recorded, *, stream: bool) -> list[bytes]:
        return body_parts(answer, stream=stream, model=recorded.model, seed=self.seed, serial=recorded.serial)

    def remember(self, answer: messages_answers.Answer, recorded: Recorded) -> None:
        content = _served([*map(_repaired, answer.content)], recorded)
        request = messages_rules.Request(recorded.body, recorded.headers, self._memory)
        prefix = request.prefix() if any(block.get("type") in THINKING for block in content) else ""
        taken = self._memory.repeated(content) and {call.text("id") for call in request.blocks("tool_use")}
        self._memory.remember(content, paused=answer.stop_reason == "pause_turn", prefix=prefix, taken=taken)


def _repaired(block: Json) -> Json:
    """Return a block as it can come back: arguments that were no object are one."""
    return {**block, "input": {}} if isinstance(block.get("input"), str) else block


_OPENAI_PATHS: Mapping[str, Api] = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "responses",
    "/openai/v1/chat/completions": "chat",
    "/openai/v1/responses": "responses",
}


@dataclass(eq=False)
class OpenAiApi(Loopback[openai_answers.Answer]):
    """OpenAI's Chat Completions and Responses, from one script."""

    name = "OpenAI API"
    paths = _OPENAI_PATHS.keys()
    service: Service = field(default_factory=Service, kw_only=True)
    """How it differs from OpenAI's own."""
    _memory: openai_rules.Memory = field(default_factory=openai_rules.Memory, init=False)

    def prepare(self) -> None:
        openai_schema("chat")
        openai_schema("responses")

    def broken_rules(self, recorded: Recorded) -> list[str]:
        api, body = _OPENAI_PATHS[recorded.path], recorded.body
        return openai_rules.judge(api, body, recorded.headers, memory=self._memory, service=self.service)

    def fault(self, status: int, message: str) -> Raw:
        return openai_answers.fault(status, message=message)

    def parts(self, answer: openai_answers.Answer, recorded: Recorded, *, stream: bool) -> list[bytes]:
        api, model, seed = _OPENAI_PATHS[recorded.path], answer.model or recorded.model, self.seed
        asked = _usage_asked(recorded) if api == "chat" else _encrypted_asked(recorded)
        key = (api, stream, model, seed, asked)
        if key not in answer.encoded and api == "chat":
            field = self.service.reasoning_field
            parts = chat_parts(answer, stream=stream, usage=asked, model=model, seed=seed, reasoning_field=field)
            answer.encoded[key] = as_said_by(self.service, parts, answer)
        elif key not in answer.encoded:
            answer.encoded[key] = responses_parts(answer, stream=stream, encrypted=asked, model=model, seed=seed)
        return [with_serial(part, recorded.serial) for part in answer.encoded[key]]

    def remember(self, answer: openai_answers.Answer, recorded: Recorded) -> None:
        if _OPENAI_PATHS[recorded.path] == "responses":
            items = _served(output_items(answer, encrypted=_encrypted_asked(recorded)), recorded)
            self._memory.remember_items(items, stored=recorded.body.get("store") is not False)
        else:
            calls = [block for block in _served(answer.content, recorded) if block["type"] == "call"]
            self._memory.remember_calls({"id": call["id"], "function": call} for call in calls)


def _usage_asked(recorded: Recorded) -> bool:
    return as_object(recorded.body.get("stream_options")).get("include_usage") is True


def _encrypted_asked(recorded: Recorded) -> bool:
    return "reasoning.encrypted_content" in as_list(recorded.body.get("include"))


_GEMINI_PATH = re.compile(
    r"/v1(?:beta1?)?/(?:projects/[\w:.-]+/locations/[\w-]+/publishers/google/)?models/([\w.-]+):(\w*enerateContent)"
)


@dataclass(eq=False)
class GeminiApi(Loopback[gemini_answers.Answer]):
    """`generateContent`, of the Developer API and of Vertex alike."""

    name = "Gemini API"
    paths = ()
    _memory: gemini_rules.Memory = field(default_factory=gemini_rules.Memory, init=False)

    def serves(self, path: str) -> bool:
        return _GEMINI_PATH.fullmatch(path) is not None

    def asks_for_stream(self, recorded: Recorded) -> bool:
        return recorded.path.endswith(":streamGenerateContent")

    def prepare(self) -> None:
        gemini_schema()

    def broken_rules(self, recorded: Recorded) -> list[str]:
        return gemini_rules.judge(_model_of(recorded), recorded.body, recorded.headers, memory=self._memory)

    def fault(self, status: int, message: str) -> Raw:
        return gemini_answers.fault(status, message=message)

    def parts(self, answer: gemini_answers.Answer, recorded: Recorded, *, stream: bool) -> list[bytes]:
        key = (stream, _model_of(recorded), self.seed)
        if key not in answer.encoded:
            answer.encoded[key] = gemini_answers.body_parts(answer, stream=stream, model=key[1], seed=self.seed)
        return [with_serial(part, recorded.serial) for part in answer.encoded[key]]

    def remember(self, answer: gemini_answers.Answer, recorded: Recorded) -> None:
        for part in self.parts(answer, recorded, stream=self.streaming and self.asks_for_stream(recorded)):
            chunk = as_object(orjson.loads(part.removeprefix(b"data: ")))
            for candidate in map(as_object, as_list(chunk.get("candidates"))):
                content = as_object(candidate.get("content"))
                self._memory.remember([*map(as_object, as_list(content.get("parts")))])


def _model_of(recorded: Recorded) -> str:
    found = _GEMINI_PATH.fullmatch(recorded.path)
    return found[1] if found else ""


def _served(content: object, recorded: Recorded) -> list[Json]:
    """Return the content of an answer as it is served to a request."""
    return orjson.loads(with_serial(orjson.dumps(content), recorded.serial))
