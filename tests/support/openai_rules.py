"""The judge of OpenAI requests: all rules of an API in order, and the pure function that applies them.

The rules that types can express come from `strict_schema.py`, those that other providers have as well from
`strict_request.py`; the others are here, those of one API alone at the end. A rule is kept if one of our encoders could
break it. Deliberately not checked, because it depends on the model: which parameters a reasoning model refuses, and
which efforts it knows.

Each rule yields one text per fault and names its source: P is developers.openai.com/api/docs, # an issue or pull
request.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise

from tests.support.messages_json import Json, as_list, as_number, as_object, as_text
from tests.support.openai_request import NAME, Memory, Request, Service, function_of, is_object_text
from tests.support.strict_request import SHARED_RULES, Item, Rule, broken_rules, items_of, rules_of
from tests.support.strict_schema import Api, openai_type_errors, without_marks

MAX_MARKS = 4
MAX_ID = 64
MIN_OUTPUT_TOKENS = 16

_PICTURE = re.compile(r"^(https?://|data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+=*\Z)")
_STRICT_KEYWORDS = frozenset(
    {"$defs", "$ref", "additionalProperties", "anyOf", "const", "definitions", "description", "enum", "format"}
    | {"exclusiveMaximum", "exclusiveMinimum", "items", "maxItems", "maximum", "minItems", "minimum", "multipleOf"}
    | {"pattern", "properties", "required", "title", "type"}
)
_PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs"}
_COMPARED = ("summary", "content", "encrypted_content", "call_id", "name", "arguments")
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
    echoed = () if field is None or request.service.thinks_in_content else (field,)
    body = as_object(without_marks(request.body)) if request.service.takes_marks else request.body
    yield from openai_type_errors(request.api, body, echoed=echoed, extensions=request.service.extensions)


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


def the_form_of_the_answer_fits(request: Request) -> Iterator[str]:
    """A form has a name and an object at the top; a strict one follows its rules (P guides/structured-outputs)."""
    body = Item("", request.body)
    form = body.under("response_format").under("json_schema")
    if not form.data:
        form = body.under("text").under("format")
    if not form.data or form.text("type") not in ("", "json_schema"):
        return
    if not NAME.match(form.text("name")):
        yield f"{form.where}.name: string does not match pattern"
    if form.under("schema").text("type") != "object":
        yield f"{form.where}.schema: schema must be a JSON Schema of 'type: \"object\"'"
    if form.data.get("strict") is True:
        yield from _against_strict(form.under("schema"))


def sounds_are_of_a_kind_that_is_taken(request: Request) -> Iterator[str]:
    """A sound is Base64 of WAV or MP3 (P guides/audio)."""
    for part in request.parts:
        sound = part.under("input_audio")
        if part.type == "input_audio" and not (sound.text("format") in ("wav", "mp3") and sound.text("data")):
            yield f"{part.where}: {sound.text('format')!r} is no sound that can be read"


def hosted_tools_are_of_their_api(request: Request) -> Iterator[str]:
    """Responses have them among the tools, Chat Completions for search models only (P guides/tools-web-search)."""
    hosted = [tool for tool in items_of(request.body.get("tools"), "tools") if tool.type not in ("function", "custom")]
    if request.api == "chat":
        if hosted:
            yield f"{hosted[0].where}.type: {hosted[0].type!r} is for Responses"
        if "web_search_options" in request.body and "-search" not in str(request.body.get("model")):
            yield "web_search_options: this model does not search"
    for tool in hosted:
        if tool.type == "file_search" and not as_list(tool.data.get("vector_store_ids")):
            yield f"{tool.where}.vector_store_ids: expected at least one"
    calls = as_number(request.body.get("max_tool_calls"))
    if calls is not None and (calls < 1 or not hosted):
        yield "max_tool_calls: needs hosted tools, and a value >= 1"


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


# -- Chat Completions alone --------------------------------------------------------------------------------------------


def tool_calls_are_not_empty(request: Request) -> Iterator[str]:
    """A list of calls has at least one (openai/openai-node#1341)."""
    for message in request.items:
        if message.data.get("tool_calls") == []:
            yield f"{message.where}.tool_calls: empty array. Expected an array with minimum length 1"


def calls_come_back_unchanged(request: Request) -> Iterator[str]:
    """A call comes back as it was served, broken arguments aside (P guides/function-calling)."""
    for call in request.calls:
        served = request.memory.calls.get(call.text("id"))
        if served and not any(_is_same_call(call.under("function"), as_object(each)) for each in served):
            yield f"{call.where}: served {served[-1]}, came back {call.data.get('function')}"


def cache_marks_are_few_and_at_texts(request: Request) -> Iterator[str]:
    """At most four, at tools and texts, but the assistant's (pydantic/pydantic-ai#4604, earendil-works/pi#6941)."""
    parts = [part for message in request.items for part in message.each("content")]
    marked = [item for item in (*parts, *items_of(request.body.get("tools"), "tools")) if "cache_control" in item.data]
    if len(marked) > MAX_MARKS:
        yield f"A maximum of {MAX_MARKS} blocks with cache_control may be provided. Found {len(marked)}"
    for message in request.items:
        for part in message.each("content"):
            is_text = part.type == "text" and part.text("text") and message.role != "assistant"
            if "cache_control" in part.data and not is_text:
                yield f"{part.where}.cache_control: is for texts of the system, the user and tools"
        if "cache_control" in message.data:
            yield f"{message.where}.cache_control: belongs to a part of content"


def fields_are_known(request: Request) -> Iterator[str]:
    """Some services refuse what they do not know (mistralai/platform-docs-public#7, dnakov/anon-kode#53)."""
    for name in sorted(request.service.refused & request.body.keys()):
        yield f"{name}: Extra inputs are not permitted"


def call_ids_have_their_length(request: Request) -> Iterator[str]:
    """Mistral's are nine letters and digits (mistral-common, the package that checks requests of Mistral's API)."""
    length = request.service.exact_id
    for call in request.calls if length else ():
        if not re.fullmatch(f"[a-zA-Z0-9]{{{length}}}", call.text("id")):
            yield f"{call.where}: id was {call.text('id')!r} but must be a-z, A-Z, 0-9, with a length of {length}"


def the_model_answers_results(request: Request) -> Iterator[str]:
    """No user's message directly after results (Mistral's API: `Unexpected role 'user' after role 'tool'`)."""
    for before, message in pairwise(request.items if request.service.replies_to_results else ()):
        if (before.role, message.role) == ("tool", "user"):
            yield f"{message.where}: Unexpected role 'user' after role 'tool'"


def calls_come_with_reasoning(request: Request) -> Iterator[str]:
    """DeepSeek refuses calls without `reasoning_content` while it reasons (P api-docs.deepseek.com thinking_mode)."""
    field = request.service.reasoning_field
    for message in request.items if request.service.reasoning_with_calls else ():
        if message.each("tool_calls") and field not in message.data:
            yield f"{message.where}: Missing `{field}` field in the assistant message"


def _is_same_call(function: Item, served: dict[str, object]) -> bool:
    arguments = as_text(served.get("arguments"))
    unchanged = function.text("arguments") == arguments or not is_object_text(arguments)
    return unchanged and (function.text("name") == served.get("name") or not NAME.match(as_text(served.get("name"))))


_CHAT_RULES: tuple[Rule[Request], ...] = rules_of(globals(), besides=_COMMON_RULES)
SERVICE_RULES: tuple[Rule[Request], ...] = (
    fields_are_known,
    call_ids_have_their_length,
    the_model_answers_results,
    calls_come_with_reasoning,
)
"""Those that OpenAI's own service does not have."""


# -- Responses alone ---------------------------------------------------------------------------------------------------


def ids_are_unique(request: Request) -> Iterator[str]:
    """No item, call or output comes twice (vercel/ai#13307, earendil-works/pi#9057)."""
    keys = [f"id {item.text('id')}" for item in request.items if item.text("id")]
    keys += [f"{item.type} with call_id {item.text('call_id')}" for item in request.items if item.text("call_id")]
    for key, times in Counter(keys).items():
        if times > 1:
            yield f"input: duplicate item found with {key}"


def item_ids_fit(request: Request) -> Iterator[str]:
    """The id of an item has its prefix, and characters (decolua/9router#393, nodetool-ai/nodetool#4252)."""
    for item in request.items:
        prefix = _PREFIXES.get(item.type, "")
        if item.data.get("id") is not None and not (item.text("id").startswith(prefix) and item.text("id")):
            yield f"{item.where}.id: {item.text('id')!r}. Expected an ID that begins with {prefix!r}"


def content_fits_the_role(request: Request) -> Iterator[str]:
    """The assistant's parts are output_text and refusal, all others' input (jeremychone/rust-genai#119)."""
    for item in request.items:
        said = item.role == "assistant"
        for part in item.each("content") if item.role else ():
            if (part.type in ("output_text", "refusal")) != said:
                yield f"{part.where}.type: {part.type!r} is no content of {item.role}"


def reasoning_can_be_read_back(request: Request) -> Iterator[str]:
    """Reasoning that was not stored comes with its encrypted content (vercel/ai#7543)."""
    for item in request.items:
        stored = any(served.stored for served, _ in request.memory.found(item))
        if item.type == "reasoning" and not item.text("encrypted_content") and not stored:
            yield f"{item.where}: {item.text('id')!r} not found. Items are not persisted when `store` is set to false"


def reasoning_has_its_following_item(request: Request) -> Iterator[str]:
    """Reasoning is followed by what it led to (vercel/ai#7099)."""
    for item, following in pairwise([*request.items, Item("", {})]):
        said = following.role == "assistant" if following.role else following.type not in ("", "function_call_output")
        if item.type == "reasoning" and not said:
            yield f"{item.where}: 'reasoning' was provided without its required following item"


def items_have_their_reasoning(request: Request) -> Iterator[str]:
    """A call that was served after reasoning comes back after it (continuedev/continue#11994)."""
    for index, item in enumerate(request.items):
        places = request.memory.found(item) if item.type == "function_call" else []
        before = request.items[index - 1] if index else Item("", {})
        if places and not any(_stands_after(before, served.items, place) for served, place in places):
            yield f"{item.where}: 'function_call' was provided without its required 'reasoning' item"


def items_come_back_unchanged(request: Request) -> Iterator[str]:
    """Reasoning and calls come back as served, broken arguments aside (P guides/reasoning)."""
    for item in request.items:
        places = request.memory.found(item) if item.type in ("reasoning", "function_call") else []
        if places and not any(_is_same_item(item, served.items[place]) for served, place in places):
            served, place = places[-1]
            yield f"{item.where}: served {served.items[place]}, came back {item.data}"


def _stands_after(before: Item, served: tuple[Json, ...], place: int) -> bool:
    led = served[place - 1] if place else {}
    if led.get("type") != "reasoning":
        return True
    return before.type == "reasoning" and before.text("id") in ("", led.get("id"))


def _is_same_item(item: Item, served: Json) -> bool:
    for key in _COMPARED:
        if key == "arguments" and not is_object_text(served.get(key)):
            continue
        if key == "name" and not NAME.match(as_text(served.get(key))):
            continue
        if (served.get(key) or None) != (item.data.get(key) or None):
            return False
    return item.text("id") in ("", served.get("id"))


RULES: Mapping[Api, tuple[Rule[Request], ...]] = {
    "chat": (*_COMMON_RULES, *_CHAT_RULES),
    "responses": (*_COMMON_RULES, *rules_of(globals(), besides=(*_COMMON_RULES, *_CHAT_RULES))),
}
