"""The Responses API: OpenAI's, and that of the servers that also speak it: which settings a request has.

Every request holds the whole conversation, and the service is asked to keep nothing; reasoning comes encrypted and goes
back as it came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import as_list
from journeyman.hosted.tools import CodeExecution, FileSearch, HostedTool, WebSearch
from journeyman.model import ModelSettings, Request, ThinkingLevel, room_for
from journeyman.models.openai.base import OpenAIStyleModel
from journeyman.models.openai.endpoint import look_up_model
from journeyman.models.openai.responses_decode import ResponsesDecoder
from journeyman.models.openai.responses_encode import NAME_CHARACTERS, encode
from journeyman.models.requests import encode_location, limits, make_unsent_error, with_extra, with_hosted
from journeyman.models.wire import shorten_names
from journeyman.types import JsonObject

if TYPE_CHECKING:
    from journeyman.model import WholeModel

_RESERVED: Final = frozenset({"conversation", "input", "instructions", "previous_response_id", "stream"})
_SAMPLING: Final = {"temperature": "temperature", "top_p": "top_p"}
_ENCRYPTED: Final = "reasoning.encrypted_content"


@lazy_dataclass(frozen=True, repr=False, eq=False)
class OpenAIModel(OpenAIStyleModel):
    """A model behind the Responses API.

    Summaries of the model's reasoning come where they are asked for:
    `ModelSettings(extra={"reasoning": {"summary": "auto"}})`.

    Raises:
        ModelUnavailable: the key or the address that the endpoint needs is missing, or the key cannot be one.
    """

    _expected: ClassVar[str] = "a Responses API stream"
    _is_chat: ClassVar[bool] = False

    @property
    def _path(self) -> str:
        return self.endpoint.responses_path

    def _decoder(self, request: Request) -> ResponsesDecoder:
        names, room = shorten_names(request.prefix.tools, longest=NAME_CHARACTERS), room_for(request, self.facts)
        return ResponsesDecoder(self.provider, price=self.price, deltas=request.deltas, room=room, names=names)

    def _encode_body(self, request: Request, head: JsonObject, more_tools: Sequence[object]) -> bytes:
        return encode(head, request.prefix, request.messages, endpoint=self.endpoint, more_tools=more_tools)

    def _head(self, request: Request) -> JsonObject:
        settings = request.settings
        _, limit = limits(request, self.facts)
        head: JsonObject = {"model": self.name, "max_output_tokens": limit, "stream": self.streaming, "store": False}
        head |= self._tool_fields(request)
        head |= self._sampling(settings, _SAMPLING, api="the Responses API")
        if request.prefix.output is not None:
            head["text"] = {"format": {"type": "json_schema", **self._form(request.prefix.output)}}
        head |= self._reasoning(settings.thinking)
        if settings.hosted:
            head |= self._limit(settings.hosted)
            head["include"] = [*as_list(head.get("include")), *[_INCLUDED[tool.type] for tool in settings.hosted]]
        head = with_extra(head, _with_includes(head, settings), reserved=_RESERVED)
        return with_hosted(head, list(map(_hosted, settings.hosted)))

    def _limit(self, hosted: Sequence[HostedTool]) -> JsonObject:
        """Return the field for the most searches: the API has one limit for all hosted tools together.

        Raises:
            ProviderError: there are others beside the search (`bad_request`).
        """
        most = [tool.max_uses for tool in hosted if isinstance(tool, WebSearch) and tool.max_uses is not None]
        if most and len(hosted) > 1:
            raise make_unsent_error(
                f"{self.provider}:{self.name} cannot limit searches beside other hosted tools: its API has one limit"
                " for all of them. Leave WebSearch.max_uses out and set ModelSettings(extra={'max_tool_calls': …})."
            )
        return {"max_tool_calls": most[0]} if most else {}

    def _reasoning(self, asked: ThinkingLevel | int | None) -> JsonObject:
        """Return the fields for reasoning; it comes encrypted, as nothing of it is kept by the service.

        Only models that are known to reason are asked for that: the others refuse it.
        """
        if isinstance(asked, int):
            name = f"{self.provider}:{self.name}"
            raise make_unsent_error(f"{name} takes no thinking budget. Ask for a level, such as thinking='medium'.")
        known = look_up_model(self.name)
        is_known_to_reason = bool(known.efforts) and known != look_up_model("")
        fields: JsonObject = {"include": [_ENCRYPTED]} if is_known_to_reason else {}
        if asked is not None:
            fields["reasoning"] = {"effort": self._effort(asked)}
        return fields


_INCLUDED: Final = {
    "web_search": "web_search_call.action.sources",
    "code_execution": "code_interpreter_call.outputs",
    "file_search": "file_search_call.results",
}


def _hosted(tool: HostedTool) -> JsonObject:
    """Return a hosted tool in the API's form."""
    match tool:
        case WebSearch():
            filters: JsonObject = {"filters": {"allowed_domains": [*tool.allowed_domains]}}
            size: JsonObject = {"search_context_size": tool.context_size}
            form: JsonObject = {"type": "web_search", **encode_location(tool.location)}
            return form | (filters if tool.allowed_domains else {}) | (size if tool.context_size else {})
        case CodeExecution():
            return {"type": "code_interpreter", "container": {"type": "auto"}}
        case FileSearch():
            most: JsonObject = {} if tool.max_results is None else {"max_num_results": tool.max_results}
            return {"type": "file_search", "vector_store_ids": [*tool.stores], **most}


def _with_includes(head: JsonObject, settings: ModelSettings) -> JsonObject:
    """Return the user's own fields; what they want included is added to what is included anyway, unless it is []."""
    ours, theirs = head.get("include"), settings.extra.get("include")
    if not isinstance(ours, list) or not isinstance(theirs, list) or not theirs:
        return settings.extra
    return {**settings.extra, "include": [*ours, *[each for each in theirs if each not in ours]]}


if TYPE_CHECKING:
    _model: WholeModel = OpenAIModel("")
