"""A strict loopback server for `generateContent`: it serves a script and refuses what the API refuses.

    async with GeminiApi([answer(call("query", {"sql": "..."})), answer("done")]) as api:
        ...  # talk to f"{api.url}/v1beta"; leaving the block fails if a request broke a rule

`POST …/models/NAME:generateContent` and `:streamGenerateContent?alt=sse` are served, of the Developer API and of Vertex
alike. Replies come from `gemini_answers.py`, rules from `gemini_rules.py`, everything else from `loopback.py`.
"""

import re
from dataclasses import dataclass, field

import orjson

from tests.support import gemini_rules
from tests.support.gemini_answers import Answer, body_parts, fault
from tests.support.loopback import Loopback, Recorded
from tests.support.messages_answers import Raw
from tests.support.messages_json import as_list, as_object
from tests.support.messages_sse import with_serial

__all__ = ["GeminiApi", "Recorded"]

_PATH = re.compile(
    r"/v1(?:beta1?)?/(?:projects/[\w:.-]+/locations/[\w-]+/publishers/google/)?models/([\w.-]+):(\w*enerateContent)"
)


@dataclass(eq=False)
class GeminiApi(Loopback[Answer]):
    """The server; see `Loopback`."""

    name = "Gemini API"
    paths = ()
    _memory: gemini_rules.Memory = field(default_factory=gemini_rules.Memory, init=False)

    def serves(self, path: str) -> bool:
        return _PATH.fullmatch(path) is not None

    def asks_for_stream(self, recorded: Recorded) -> bool:
        return recorded.path.endswith(":streamGenerateContent")

    def prepare(self) -> None:
        gemini_rules.prepare()

    def broken_rules(self, recorded: Recorded) -> list[str]:
        return gemini_rules.judge(model_of(recorded), recorded.body, recorded.headers, memory=self._memory)

    def fault(self, status: int, message: str) -> Raw:
        return fault(status, message=message)

    def parts(self, answer: Answer, recorded: Recorded, *, stream: bool) -> list[bytes]:
        model = model_of(recorded)
        if (stream, model, self.seed) not in answer.encoded:
            parts = body_parts(answer, stream=stream, model=model, seed=self.seed)
            answer.encoded[stream, model, self.seed] = parts
        return [with_serial(part, recorded.serial) for part in answer.encoded[stream, model, self.seed]]

    def remember(self, answer: Answer, recorded: Recorded) -> None:
        for part in self.parts(answer, recorded, stream=self.streaming and self.asks_for_stream(recorded)):
            chunk = as_object(orjson.loads(part.removeprefix(b"data: ")))
            for candidate in map(as_object, as_list(chunk.get("candidates"))):
                content = as_object(candidate.get("content"))
                self._memory.remember([*map(as_object, as_list(content.get("parts")))])


def model_of(recorded: Recorded) -> str:
    """Return the name of the model in a request's path."""
    found = _PATH.fullmatch(recorded.path)
    return found[1] if found else ""
