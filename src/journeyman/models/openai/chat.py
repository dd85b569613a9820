"""Chat Completions: OpenAI's, and those of the many servers that speak it: which settings a request has.

What a service can do differs, so that every field is sent only where the `Endpoint` says that it is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import as_object
from journeyman.errors import ProviderError
from journeyman.hosted.tools import HostedTool, WebSearch
from journeyman.model import Request, ThinkingLevel, room_for
from journeyman.models.openai.base import OpenAIStyleModel
from journeyman.models.openai.chat_decode import ChatDecoder
from journeyman.models.openai.chat_encode import NAME_CHARACTERS, encode
from journeyman.models.openai.endpoint import hears, look_up_model
from journeyman.models.requests import ROOM_FOR_ANSWER, encode_location, limits, make_unsent_error, with_extra
from journeyman.models.wire import shorten_names
from journeyman.types import JsonObject

if TYPE_CHECKING:
    from journeyman.model import WholeModel

_NAMED: Final = ("max_tokens", "temperature", "top_p", "seed", "stop")
_RESERVED: Final = frozenset({"messages", "stream"})


@lazy_dataclass(frozen=True, repr=False, eq=False)
class OpenAIChatModel(OpenAIStyleModel):
    """A model behind Chat Completions.

    Raises:
        ModelUnavailable: the key or the address that the endpoint needs is missing, or the key cannot be one.
    """

    _expected: ClassVar[str] = "chat completions"
    _is_chat: ClassVar[bool] = True

    @property
    def _path(self) -> str:
        return self.endpoint.chat_path

    def _decoder(self, request: Request) -> ChatDecoder:
        room = room_for(request, self.facts)
        searched = len(request.settings.hosted) or None  # before every answer
        return ChatDecoder(
            self.provider,
            price=self.price,
            deltas=request.deltas,
            room=room,
            tells_cost=self.endpoint.usage == "cost",
            web_searches=searched,
            names=shorten_names(request.prefix.tools, longest=NAME_CHARACTERS),
            finds_thoughts=not self.endpoint.is_openai,
        )

    def _encode_body(self, request: Request, head: JsonObject, more_tools: Sequence[object]) -> bytes:
        endpoint, prefix, messages = self.endpoint, request.prefix, request.messages
        cache = request.settings.cache if self.name.startswith(endpoint.cache_marks) else None
        heard = hears(endpoint, self.name)
        return encode(head, prefix, messages, endpoint=endpoint, cache=cache, more_tools=more_tools, hears=heard)

    def _head(self, request: Request) -> JsonObject:
        settings, endpoint = request.settings, self.endpoint
        ceiling, limit = limits(request, self.facts)
        names = {each: name for each in _NAMED if (name := endpoint.field_names.get(each, each))}
        longest: JsonObject = {names["max_tokens"]: limit} if "max_tokens" in names else {}
        head: JsonObject = {"model": self.name, **longest, "stream": self.streaming}
        if self.streaming and endpoint.usage != "none":
            head["stream_options"] = {"include_usage": True}
        if endpoint.is_openai:
            head["store"] = False
        if endpoint.usage == "cost":
            head["usage"] = {"include": True}
        head |= self._tool_fields(request)
        head |= self._sampling(settings, names, api="Chat Completions")
        if request.prefix.output is not None:
            head["response_format"] = {"type": "json_schema", "json_schema": self._form(request.prefix.output)}
        for search in settings.hosted:  # no other tool; see `hosting_of`
            head["web_search_options"] = _search(search)
        head |= self._reasoning(request, ceiling=ceiling, limit=limit)
        return with_extra(head, settings.extra, reserved=_RESERVED)

    def _reasoning(self, request: Request, *, ceiling: int, limit: int) -> JsonObject:
        """Return the fields for reasoning; some models have tools with the effort `none` only, and must be told so."""
        asked, tools = request.settings.thinking, "yes"
        if request.prefix.tools and self.endpoint.reasoning.efforts is None:  # one with efforts of its own knows better
            tools = look_up_model(self.name).chat_tools
        if tools == "no":
            raise self._refused_with_tools("has no tools over Chat Completions")
        if isinstance(asked, int):
            return self._budget(asked, ceiling=ceiling, limit=limit)
        if asked is None:
            return {} if tools == "yes" else self._effort_field("off")
        fields = self._effort_field(asked)
        if tools == "without reasoning" and asked != "off":
            raise self._refused_with_tools("cannot both reason and use tools over Chat Completions")
        return fields

    def _effort_field(self, level: ThinkingLevel) -> JsonObject:
        field, off = self.endpoint.reasoning.effort_field, self.endpoint.reasoning.off
        if level == "off" and off is not None:
            return dict(off)
        if field is None:
            raise make_unsent_error(
                f"{self.provider}:{self.name} has no known field for the effort of reasoning. Leave"
                " ModelSettings.thinking at None and put what the server takes into ModelSettings.extra, or replace"
                " effort_field and efforts of the endpoint's reasoning."
            )
        effort = self._effort(level)
        return {field: effort if field == "reasoning_effort" else {"effort": effort}}

    def _budget(self, budget: int, *, ceiling: int, limit: int) -> JsonObject:
        """Return the field for a budget; `limit` is `ceiling` or less, when a budget of the run leaves less."""
        if not self.endpoint.reasoning.takes_budget:
            name = f"{self.provider}:{self.name}"
            raise make_unsent_error(f"{name} takes no thinking budget. Ask for a level, such as thinking='medium'.")
        if not 0 < budget < ceiling:
            said = f"A thinking budget of {budget} is not between 1 and max_tokens, which is {ceiling}."
            raise make_unsent_error(f"{said} Change one of the two.")
        budget = min(budget, limit - ROOM_FOR_ANSWER)
        return {"reasoning": {"max_tokens": budget}} if budget > 0 else {}

    def _refused_with_tools(self, words: str) -> ProviderError:
        prefix = "openai" if self.provider == "openai" else f"{self.provider}-responses"
        return make_unsent_error(
            f"{self.provider}:{self.name} {words}. Use it over the Responses API, as '{prefix}:{self.name}', or without"
            " tools, typed output and sub-agents."
        )


def _search(tool: HostedTool) -> JsonObject:
    if not isinstance(tool, WebSearch):
        return {}
    size: JsonObject = {} if tool.context_size is None else {"search_context_size": tool.context_size}
    if tool.location is None:
        return size
    place = {
        key: value for key, value in as_object(encode_location(tool.location)["user_location"]).items() if key != "type"
    }
    return {**size, "user_location": {"type": "approximate", "approximate": place}}


if TYPE_CHECKING:
    _model: WholeModel = OpenAIChatModel("")
