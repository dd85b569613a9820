"""Rules about everything but the conversation, for both of OpenAI's APIs: headers, tools, schemas and parameters.

Each rule yields one text per fault and names its source: P is developers.openai.com/api/docs, # an issue or pull
request.
"""

import re
from collections import Counter
from collections.abc import Iterator

import jsonschema_rs

from tests.support.messages_json import as_list, as_number, as_object, as_text
from tests.support.openai_request import Item, Request

MAX_TOOLS = 128
MAX_STOPS = 4
MIN_OUTPUT_TOKENS = 16

NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}\Z")
_PICTURE = re.compile(r"^(https?://|data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+=*\Z)")
_STRICT_KEYWORDS = frozenset(
    {"$defs", "$ref", "additionalProperties", "anyOf", "const", "definitions", "description", "enum", "format"}
    | {"exclusiveMaximum", "exclusiveMinimum", "items", "maxItems", "maximum", "minItems", "minimum", "multipleOf"}
    | {"pattern", "properties", "required", "title", "type"}
)
_STRICT_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")


def a_key_is_given(request: Request) -> Iterator[str]:
    """The key comes as a bearer token, at Azure also as api-key (P api-reference/authentication)."""
    if not api_key(request.headers):
        yield "authorization: You didn't provide an API key"


def the_content_type_is_json(request: Request) -> Iterator[str]:
    """The header content-type is application/json (P api-reference)."""
    given = request.headers.get("content-type", "")
    if given.partition(";")[0].strip().lower() != "application/json":
        yield f"content-type: must be application/json, not {given!r}"


def tools_are_some_but_not_too_many(request: Request) -> Iterator[str]:
    """A list of tools has 1 to 128 (runebookai/tome#87, 0x4m4/hexstrike-ai#29)."""
    tools = request.body.get("tools")
    if isinstance(tools, list) and not 1 <= len(as_list(request.body["tools"])) <= MAX_TOOLS:
        yield f"tools: must have 1 to {MAX_TOOLS} tools, found {len(as_list(request.body['tools']))}"


def tool_names_fit_the_pattern(request: Request) -> Iterator[str]:
    """Names match ^[a-zA-Z0-9_-]{1,64}$ (P guides/function-calling)."""
    for tool in request.tools:
        if not NAME.match(tool.text("name")):
            yield f"{tool.where}.name: {tool.text('name')!r} should match '^[a-zA-Z0-9_-]{{1,64}}$'"


def tool_names_are_unique(request: Request) -> Iterator[str]:
    """No two tools share a name (P guides/function-calling: the model calls a function by its name)."""
    for name, times in Counter(tool.text("name") for tool in request.tools).items():
        if name and times > 1:
            yield f"tools: tool names must be unique, {name!r} is repeated"


def a_tool_schema_is_an_object(request: Request) -> Iterator[str]:
    """Parameters have type object and nothing else on top (nspady/google-calendar-mcp#39)."""
    for parameters in _schemas(request):
        clash = [key for key in ("oneOf", "anyOf", "allOf", "enum", "not") if key in parameters.data]
        if parameters.data.get("type") != "object" or clash:
            yield f"{parameters.where}: schema must have type 'object' and not have {clash or 'another'} at the top"


def a_tool_schema_is_valid(request: Request) -> Iterator[str]:
    """Parameters follow JSON Schema, and an array says what it holds (P guides/function-calling)."""
    for parameters in _schemas(request):
        schema = {key: value for key, value in parameters.data.items() if key != "$schema"}
        if not jsonschema_rs.meta.is_valid(schema):
            yield f"{parameters.where}: is no valid JSON schema"
        for place in _walk(parameters):
            if place.data.get("type") == "array" and "items" not in place.data:
                yield f"{place.where}: array schema missing items"


def strict_schemas_have_the_form(request: Request) -> Iterator[str]:
    """A strict schema is closed, all required, and of the words that are kept (P guides/structured-outputs)."""
    for tool in request.tools:
        if tool.data.get("strict") is True:
            yield from _against_strict(tool.under("parameters"))


def tool_choice_has_its_tools(request: Request) -> Iterator[str]:
    """A choice needs tools and names one of them (P guides/function-calling)."""
    choice = request.body.get("tool_choice")
    named = as_object(choice)
    name = as_text(named.get("name")) or as_text(as_object(named.get("function")).get("name"))
    if choice is not None and not as_list(request.body.get("tools")):
        yield "tool_choice: is only allowed when 'tools' are specified"
    elif named.get("type") == "function" and name not in [tool.text("name") for tool in request.tools]:
        yield f"tool_choice: there is no tool {name!r}"


def parallel_calls_have_their_tools(request: Request) -> Iterator[str]:
    """The parameter parallel_tool_calls needs tools (camel-ai/camel#3706)."""
    if request.body.get("parallel_tool_calls") is not None and not as_list(request.body.get("tools")):
        yield "parallel_tool_calls: is only allowed when 'tools' are specified"


def stream_options_are_for_streams(request: Request) -> Iterator[str]:
    """The parameter stream_options needs stream: true (P api-reference/chat)."""
    if request.body.get("stream_options") is not None and request.body.get("stream") is not True:
        yield "stream_options: is only allowed when 'stream' is enabled"


def there_are_at_most_four_stops(request: Request) -> Iterator[str]:
    """A request has 1 to 4 stop sequences (langchain-ai/langchain#20234)."""
    stops = request.body.get("stop")
    if isinstance(stops, list) and not 1 <= len(as_list(request.body["stop"])) <= MAX_STOPS:
        yield f"stop: must have 1 to {MAX_STOPS} sequences"


def the_longest_answer_is_given_once(request: Request) -> Iterator[str]:
    """Of max_tokens and max_completion_tokens only one; Responses want at least 16 (vectorize-io/hindsight#58)."""
    given = [name for name in ("max_tokens", "max_completion_tokens") if request.body.get(name) is not None]
    if len(given) > 1:
        yield f"{' and '.join(given)}: may not be set both"
    tokens = as_number(request.body.get("max_output_tokens"))
    if tokens is not None and tokens < MIN_OUTPUT_TOKENS:
        yield f"max_output_tokens: expected a value >= {MIN_OUTPUT_TOKENS}, but got {tokens}"


def pictures_have_an_address(request: Request) -> Iterator[str]:
    """A picture is a web address, or base64 of PNG, JPEG, GIF or WebP (P guides/images-vision)."""
    for part in request.parts:
        if part.type not in ("image_url", "input_image") or part.text("file_id"):
            continue
        url = part.text("image_url") or part.under("image_url").text("url")
        if not _PICTURE.match(url):
            yield f"{part.where}: {url[:40]!r} is no picture that can be read"


def api_key(headers: dict[str, str]) -> str:
    """Return the key of a request, empty if it has none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return (token.strip() if scheme.lower() == "bearer" else "") or headers.get("api-key", "")


def _schemas(request: Request) -> Iterator[Item]:
    for tool in request.tools:
        if tool.data.get("parameters") is not None:
            yield tool.under("parameters")


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


SETTINGS_RULES = (
    a_key_is_given,
    the_content_type_is_json,
    tools_are_some_but_not_too_many,
    tool_names_fit_the_pattern,
    tool_names_are_unique,
    a_tool_schema_is_an_object,
    a_tool_schema_is_valid,
    strict_schemas_have_the_form,
    tool_choice_has_its_tools,
    parallel_calls_have_their_tools,
    stream_options_are_for_streams,
    there_are_at_most_four_stops,
    the_longest_answer_is_given_once,
    pictures_have_an_address,
)
