"""The Responses API: OpenAI's, and that of the servers that also speak it: which settings a request has.

Every request holds the whole conversation, and the service is asked to keep nothing; reasoning comes encrypted and goes
back as it came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from journeyman.model import Request, Settings, ThinkingLevel, room_for
from journeyman.models.openai.base import OpenAIStyleModel
from journeyman.models.openai.endpoint import known_of
from journeyman.models.openai.responses_decode import Decoder
from journeyman.models.openai.responses_encode import encode
from journeyman.models.requests import limits, refused_here, with_extra
from journeyman.types import JsonObject

if TYPE_CHECKING:
    from journeyman.model import HasFacts, Model, Opens

_RESERVED: Final = frozenset({"conversation", "input", "instructions", "previous_response_id", "stream"})
_ENCRYPTED: Final = "reasoning.encrypted_content"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class OpenAIModel(OpenAIStyleModel):
    """A model behind the Responses API.

    Summaries of the model's reasoning come where they are asked for:
    `Settings(extra={"reasoning": {"summary": "auto"}})`.
    """

    _expected: ClassVar[str] = "a Responses API stream"

    @property
    def _path(self) -> str:
        return self.endpoint.responses_path

    def _decoder(self, request: Request) -> Decoder:
        return Decoder(self.provider, self.price, deltas=request.deltas, room=room_for(request, self.facts))

    def _encoded(self, request: Request, head: JsonObject, more_tools: Sequence[object]) -> bytes:
        return encode(head, request.prefix, request.messages, endpoint=self.endpoint, more_tools=more_tools)

    def _head(self, request: Request) -> JsonObject:
        settings = request.settings
        _, limit = limits(request, self.facts)
        head: JsonObject = {"model": self.name, "max_output_tokens": limit, "stream": self.streaming}
        head["store"] = self.endpoint.store or False
        head |= self._tool_fields(request)
        if settings.stop_sequences:
            raise refused_here(
                f"{self.provider}:{self.name} takes no stop sequences over the Responses API. Leave"
                " Settings.stop_sequences empty, or use the model over Chat Completions."
            )
        head |= self._reasoning(settings.thinking)
        return with_extra(head, _with_includes(head, settings), reserved=_RESERVED)

    def _reasoning(self, asked: ThinkingLevel | int | None) -> JsonObject:
        """Return the fields for reasoning; it comes encrypted, as nothing of it is kept by the service.

        Only models that are known to reason are asked for that: the others refuse it.
        """
        if isinstance(asked, int):
            name = f"{self.provider}:{self.name}"
            raise refused_here(f"{name} takes no thinking budget. Ask for a level, such as thinking='medium'.")
        known = known_of(self.name)
        is_known_to_reason = bool(known.efforts) and known != known_of("")
        fields: JsonObject = {"include": [_ENCRYPTED]} if is_known_to_reason else {}
        if asked is not None:
            fields["reasoning"] = {"effort": self._effort(asked)}
        return fields


def _with_includes(head: JsonObject, settings: Settings) -> JsonObject:
    """Return the user's own fields; what they want included is added to what is included anyway, unless it is []."""
    ours, theirs = head.get("include"), settings.extra.get("include")
    if not isinstance(ours, list) or not isinstance(theirs, list) or not theirs:
        return settings.extra
    return {**settings.extra, "include": [*ours, *[each for each in theirs if each not in ours]]}


if TYPE_CHECKING:
    _model: Model = OpenAIModel("")
    _opens: Opens = OpenAIModel("")
    _has_facts: HasFacts = OpenAIModel("")
