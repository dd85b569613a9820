"""The judge of OpenAI requests: all rules of an API in order, and the pure function that applies them.

The rules that types can express come from `openai_schema.py`, those that other providers have as well from
`strict_request.py`, those of one API alone from `openai_rules_chat.py` and `openai_rules_responses.py`; the others are
here. A rule is kept if one of our encoders could break it. Deliberately not checked, because it depends on the
model: which parameters a reasoning model refuses, and which efforts it knows.

Each rule yields one text per fault and names its source: P is developers.openai.com/api/docs, # an issue or pull
request.
"""

import re
from collections.abc import Iterator, Mapping

from tests.support.messages_json import Json, as_list, as_number, as_object, as_text
from tests.support.openai_request import NAME, Memory, Request, Service, function_of, is_object_text
from tests.support.openai_rules_chat import CHAT_RULES
from tests.support.openai_rules_responses import RESPONSES_RULES
from tests.support.openai_schema import Api, type_errors, without_marks
from tests.support.strict_request import SHARED_RULES, Item, Rule, broken_rules, rules_of

MAX_ID = 64
MIN_OUTPUT_TOKENS = 16

_PICTURE = re.compile(r"^(https?://|data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+=*\Z)")
_STRICT_KEYWORDS = frozenset(
    {"$defs", "$ref", "additionalProperties", "anyOf", "const", "definitions", "description", "enum", "format"}
    | {"exclusiveMaximum", "exclusiveMinimum", "items", "maxItems", "maximum", "minItems", "minimum", "multipleOf"}
    | {"pattern", "properties", "required", "title", "type"}
)
_STRICT_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")


def judge(
    api: Api, body: Json, headers: Mapping[str, str], *, memory: Memory | None = None, service: Service | None = None
) -> list[str]:
    """Return every violation in a request, each as `rule: text`; none means that the API would take it.

    `memory` holds the answers served before, which must come back unchanged.
    """
    request = Request(api, body, headers, Memory() if memory is None else memory, service)
    return broken_rules(RULES[api], request)


def types_fit(request: Request) -> Iterator[str]:
    """The body has the official request type, apart from what the API's own messages bring (P api-reference)."""
    field = request.service.reasoning_field
    echoed = () if field is None else (field,)
    body = as_object(without_marks(request.body)) if request.service.takes_marks else request.body
    yield from type_errors(request.api, body, echoed=echoed, extensions=request.service.extensions)


def tools_are_not_empty(request: Request) -> Iterator[str]:
    """A list of tools has some (runebookai/tome#87)."""
    if request.body.get("tools") == []:
        yield "tools: must have at least one tool"


def the_longest_answer_is_not_too_short(request: Request) -> Iterator[str]:
    """Responses want at least 16 tokens (vectorize-io/hindsight#58)."""
    tokens = as_number(request.body.get("max_output_tokens"))
    if tokens is not None and tokens < MIN_OUTPUT_TOKENS:
        yield f"max_output_tokens: expected a value >= {MIN_OUTPUT_TOKENS}, but got {tokens}"


def there_is_a_message(request: Request) -> Iterator[str]:
    """At least one message or item (CopilotKit/CopilotKit#529, P api-reference/responses)."""
    if not request.items:
        yield "messages: empty array. Expected an array with minimum length 1"


def content_is_given(request: Request) -> Iterator[str]:
    """A message says something, but for one that calls (run-llama/llama_index#17555, vllm-project/vllm#49130)."""
    for item in request.items:
        content = item.data.get("content")
        needs_none = item.role == "assistant" and (item.each("tool_calls") or item.text("refusal"))
        is_empty = content is None or content == [] or (content == "" and request.api == "responses")
        if item.role and is_empty and not needs_none:
            yield f"{item.where}.content: must not be empty"


def call_ids_fit(request: Request) -> Iterator[str]:
    """Ids are not empty and not too long (vercel/ai#5171, decolua/9router#393)."""
    longest = request.service.longest_id if request.api == "chat" else MAX_ID
    for call in request.calls:
        id = call.text(request.call_key)
        if not id or (longest is not None and len(id) > longest):
            yield f"{call.where}: id {id!r} must have 1 to {longest or 'any'} characters"


def called_names_fit_the_pattern(request: Request) -> Iterator[str]:
    """The name in a call matches ^[a-zA-Z0-9_-]{1,64}$ (continuedev/continue#11645)."""
    for call in map(function_of, request.calls):
        if not NAME.match(call.text("name")):
            yield f"{call.where}.name: {call.text('name')!r} should match '{NAME.pattern}'"


def arguments_are_the_text_of_an_object(request: Request) -> Iterator[str]:
    """Arguments are text; vLLM and llama.cpp parse it (vllm-project/vllm#43995, #48922)."""
    for call in map(function_of, request.calls):
        if not is_object_text(call.data.get("arguments")):
            yield f"{call.where}.arguments: must be the text of a JSON object"


def strict_schemas_have_the_form(request: Request) -> Iterator[str]:
    """A strict schema is closed, all required, and of the words that are kept (P guides/structured-outputs)."""
    for tool in request.tools:
        if tool.data.get("strict") is True:
            yield from _against_strict(tool.under("parameters"))


def parallel_calls_have_their_tools(request: Request) -> Iterator[str]:
    """The parameter parallel_tool_calls needs tools (camel-ai/camel#3706)."""
    if request.body.get("parallel_tool_calls") is not None and not as_list(request.body.get("tools")):
        yield "parallel_tool_calls: is only allowed when 'tools' are specified"


def stream_options_are_for_streams(request: Request) -> Iterator[str]:
    """The parameter stream_options needs stream: true (P api-reference/chat)."""
    if request.body.get("stream_options") is not None and request.body.get("stream") is not True:
        yield "stream_options: is only allowed when 'stream' is enabled"


def pictures_have_an_address(request: Request) -> Iterator[str]:
    """A picture is a web address, or base64 of PNG, JPEG, GIF or WebP (P guides/images-vision)."""
    for part in request.parts:
        if part.type not in ("image_url", "input_image") or part.text("file_id"):
            continue
        url = part.text("image_url") or part.under("image_url").text("url")
        if not _PICTURE.match(url):
            yield f"{part.where}: {url[:40]!r} is no picture that can be read"


def _walk(schema: Item) -> Iterator[Item]:
    """Yield a schema and all schemas inside it."""
    yield schema
    for key in ("properties", "$defs", "definitions"):
        inside = schema.under(key)
        for name in inside.data:
            yield from _walk(inside.under(name))
    if isinstance(schema.data.get("items"), dict):
        yield from _walk(schema.under("items"))
    for option in schema.each("anyOf"):
        yield from _walk(option)


def _against_strict(parameters: Item) -> Iterator[str]:
    for place in _walk(parameters):
        if unknown := sorted(place.data.keys() - _STRICT_KEYWORDS):
            yield f"{place.where}: {unknown} is not permitted"
        if (format := place.data.get("format")) is not None and format not in _STRICT_FORMATS:
            yield f"{place.where}: {format!r} is not a valid format"
        if "$ref" in place.data and len(place.data) > 1:
            yield f"{place.where}: $ref cannot have keywords {sorted(place.data.keys() - {'$ref'})}"
        types = place.data.get("type")
        if types == "object" or "object" in as_list(types) or "properties" in place.data:
            if place.data.get("additionalProperties") is not False:
                yield f"{place.where}: 'additionalProperties' is required to be supplied and to be false"
            missing = as_object(place.data.get("properties")).keys() - {
                *map(as_text, as_list(place.data.get("required")))
            }
            if missing:
                yield f"{place.where}: 'required' has to include every key, it misses {sorted(missing)}"


_COMMON_RULES: tuple[Rule[Request], ...] = (*rules_of(globals()), *SHARED_RULES)
RULES: Mapping[Api, tuple[Rule[Request], ...]] = {
    "chat": (*_COMMON_RULES, *CHAT_RULES),
    "responses": (*_COMMON_RULES, *RESPONSES_RULES),
}
