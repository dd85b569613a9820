"""Rules about everything but the messages: headers, size, tools, thinking, sampling and cache marks.

Each rule yields one text per fault and names its source: P is platform.claude.com/docs/en, # an issue or pull
request.
"""

import re
from collections import Counter
from collections.abc import Iterator

import jsonschema_rs

from tests.support.messages_json import Json, as_number, as_object, as_text
from tests.support.messages_request import Block, Request

MAX_BODY_BYTES = 32 * 1024 * 1024
MAX_CACHE_MARKS = 4
MIN_BUDGET_TOKENS = 1024
NO_SAMPLING_SINCE = "2026-10-21"

_VERSION = re.compile(r"^\d{4}-\d{2}-\d{2}\Z")
_TOOL_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,128}\Z")
_PROPERTY_NAME = re.compile(r"^[a-zA-Z0-9_.-]{1,64}\Z")
_SAMPLING = ("temperature", "top_p", "top_k")


def the_body_fits(request: Request) -> Iterator[str]:
    """A body has at most 32 MB (P api/errors)."""
    if request.size > MAX_BODY_BYTES:
        yield f"the request has {request.size} bytes, at most {MAX_BODY_BYTES} are allowed"


def a_key_is_given(request: Request) -> Iterator[str]:
    """The key comes as x-api-key or as a bearer token (P api/overview)."""
    if not api_key(request.headers):
        yield "x-api-key: header is required (or authorization: Bearer)"


def the_version_is_given(request: Request) -> Iterator[str]:
    """The header anthropic-version names a date (P api/overview)."""
    if not _VERSION.match(request.headers.get("anthropic-version", "")):
        yield "anthropic-version: header is required, as a date"


def the_content_type_is_json(request: Request) -> Iterator[str]:
    """The header content-type is application/json (P api/overview)."""
    given = request.headers.get("content-type", "")
    if given.partition(";")[0].strip().lower() != "application/json":
        yield f"content-type: must be application/json, not {given!r}"


def tools_are_given_for_tool_blocks(request: Request) -> Iterator[str]:
    """A history with calls or results needs tools (P agents-and-tools/tool-use/define-tools)."""
    used = any(turn.of_type("tool_use", "tool_result") for turn in request.turns)
    if used and not request.tools:
        yield "tools: requests which have `tool_use` or `tool_result` blocks must define tools"


def tool_names_fit_the_pattern(request: Request) -> Iterator[str]:
    """Names match ^[a-zA-Z0-9_-]{1,128}$ (P define-tools, home-assistant/core#147760)."""
    for tool in _custom_tools(request):
        if not _TOOL_NAME.match(tool.text("name")):
            yield f"{tool.where}.name: {tool.text('name')!r} should match '^[a-zA-Z0-9_-]{{1,128}}$'"


def tool_names_are_unique(request: Request) -> Iterator[str]:
    """No two tools share a name (tailcallhq/forgecode#892)."""
    for name, times in Counter(tool.text("name") for tool in request.tools).items():
        if name and times > 1:
            yield f"tools: tool names must be unique, {name!r} is repeated"


def a_tool_schema_is_an_object(request: Request) -> Iterator[str]:
    """The input schema has type object (P define-tools)."""
    for where, schema in _tool_schemas(request):
        if schema.get("type") != "object":
            yield f"{where}.type: must be 'object'"


def a_tool_schema_has_no_union_on_top(request: Request) -> Iterator[str]:
    """No anyOf, oneOf or allOf at the top of an input schema (dearlordylord/huly-mcp#66)."""
    for where, schema in _tool_schemas(request):
        for keyword in ("anyOf", "oneOf", "allOf"):
            if keyword in schema:
                yield f"{where}: does not support {keyword} at the top level"


def a_tool_schema_is_valid(request: Request) -> Iterator[str]:
    """The input schema follows JSON Schema draft 2020-12 (P define-tools)."""
    for where, schema in _tool_schemas(request):
        # An older draft named in `$schema` would be judged by its own rules.
        draft_2020_12 = {key: value for key, value in schema.items() if key != "$schema"}
        if not jsonschema_rs.meta.is_valid(draft_2020_12):
            yield f"{where}: JSON schema is invalid, it must match JSON Schema draft 2020-12"


def property_names_fit_the_pattern(request: Request) -> Iterator[str]:
    """Top-level property names match ^[a-zA-Z0-9_.-]{1,64}$ (diegosouzapw/OmniRoute#13552)."""
    for where, schema in _tool_schemas(request):
        for name in as_object(schema.get("properties")):
            if not _PROPERTY_NAME.match(name):
                yield f"{where}.properties: {name!r} should match '^[a-zA-Z0-9_.-]{{1,64}}$'"


def tool_choice_names_a_tool(request: Request) -> Iterator[str]:
    """A choice needs tools, and a named one must be among them (P define-tools)."""
    choice = as_object(request.body.get("tool_choice"))
    if choice.get("type") in ("auto", "any", "tool") and not request.tools:
        yield "tool_choice: may only be specified while providing tools"
    elif choice.get("type") == "tool" and choice.get("name") not in [tool.text("name") for tool in request.tools]:
        yield f"tool_choice: tool {choice.get('name')!r} not found in provided tools"


def not_every_tool_is_deferred(request: Request) -> Iterator[str]:
    """At least one tool is in the prompt (P tool-use/tool-search-tool)."""
    if request.tools and all(tool.data.get("defer_loading") is True for tool in request.tools):
        yield "tools: at least one tool must have defer_loading=false"


def deferred_tools_have_no_cache_mark(request: Request) -> Iterator[str]:
    """What is not in the prompt cannot end a cached beginning (P tool-use/tool-use-with-prompt-caching)."""
    for tool in request.tools:
        if tool.data.get("defer_loading") is True and _cache_mark(tool):
            yield f"{tool.where}: a tool with defer_loading cannot have cache_control"


def the_thinking_budget_fits(request: Request) -> Iterator[str]:
    """At least 1024 and less than max_tokens, unless thinking is interleaved (P extended-thinking)."""
    budget = as_number(as_object(request.body.get("thinking")).get("budget_tokens"))
    max_tokens = as_number(request.body.get("max_tokens"))
    if request.thinking != "enabled" or budget is None or max_tokens is None:
        return
    if budget < MIN_BUDGET_TOKENS:
        yield f"thinking.budget_tokens: must be at least {MIN_BUDGET_TOKENS}"
    if budget >= max_tokens and "interleaved-thinking" not in request.headers.get("anthropic-beta", ""):
        yield "max_tokens: must be greater than thinking.budget_tokens"


def thinking_leaves_sampling_alone(request: Request) -> Iterator[str]:
    """With thinking: no temperature but 1, no top_k, top_p of at least 0.95 (P extended-thinking)."""
    if not request.thinking:
        return
    if request.body.get("temperature") not in (None, 1):
        yield "temperature: may only be set to 1 when thinking is enabled"
    if request.body.get("top_k") is not None:
        yield "top_k: must be unset when thinking is enabled"
    top_p = as_number(request.body.get("top_p"))
    if top_p is not None and top_p < 0.95:
        yield "top_p: must be greater than or equal to 0.95 or unset when thinking is enabled"


def thinking_allows_no_forced_tool(request: Request) -> Iterator[str]:
    """With manual thinking a tool cannot be forced (P extended-thinking)."""
    choice = as_text(as_object(request.body.get("tool_choice")).get("type"))
    if request.thinking == "enabled" and choice in ("any", "tool"):
        yield "tool_choice: thinking may not be enabled when tool_choice forces tool use"


def thinking_allows_no_prefill(request: Request) -> Iterator[str]:
    """With thinking the last message is not the assistant's, but for a paused one (P extended-thinking)."""
    ends_with_answer = bool(request.messages) and request.messages[-1].role == "assistant"
    if request.thinking and ends_with_answer and not request.continues_a_pause:
        yield "messages: the final message cannot be the assistant's when thinking is enabled"


def sampling_is_for_the_older_version(request: Request) -> Iterator[str]:
    """Since version 2026-10-21 there is no temperature, top_p or top_k (the official SDK has none)."""
    for name in _SAMPLING:
        given = request.body.get(name) is not None
        if given and request.headers.get("anthropic-version", "") >= NO_SAMPLING_SINCE:
            yield f"{name}: extra inputs are not permitted"


def there_are_at_most_four_cache_marks(request: Request) -> Iterator[str]:
    """Over tools, system and messages, the automatic mark of the request included (P prompt-caching)."""
    marks = [mark for mark in (_cache_mark(place) for place in _cache_places(request)) if mark]
    if len(marks) > MAX_CACHE_MARKS:
        yield f"a maximum of {MAX_CACHE_MARKS} blocks with cache_control may be provided, found {len(marks)}"


def cache_marks_sit_on_content(request: Request) -> Iterator[str]:
    """Thinking and empty text cannot be marked (P prompt-caching, tghamm/Anthropic.SDK#50)."""
    for block in request.cacheable:
        is_empty = block.type == "text" and not block.text("text")
        if _cache_mark(block) and (is_empty or block.type in ("thinking", "redacted_thinking")):
            kind = "empty text" if is_empty else block.type
            yield f"{block.where}: cache_control cannot be set for {kind} blocks"


def longer_cache_marks_come_first(request: Request) -> Iterator[str]:
    """A mark of one hour does not follow one of five minutes (P prompt-caching)."""
    short = False
    for block in request.cacheable:
        mark = _cache_mark(block)
        if mark and mark.get("ttl") == "1h" and short:
            yield f"{block.where}: a ttl='1h' cache_control block must not come after a ttl='5m' one"
        short = short or (bool(mark) and mark.get("ttl") != "1h")


def api_key(headers: dict[str, str]) -> str:
    """Return the key of a request, empty if it has none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return headers.get("x-api-key", "") or (token.strip() if scheme.lower() == "bearer" else "")


def _custom_tools(request: Request) -> list[Block]:
    return [tool for tool in request.tools if tool.data.get("type") in (None, "custom")]


def _tool_schemas(request: Request) -> Iterator[tuple[str, Json]]:
    for tool in _custom_tools(request):
        yield f"{tool.where}.input_schema", as_object(tool.data.get("input_schema"))


def _cache_places(request: Request) -> Iterator[Block]:
    yield Block("body", request.body)
    yield from request.cacheable


def _cache_mark(block: Block) -> Json:
    return as_object(block.data.get("cache_control"))


SETTINGS_RULES = (
    the_body_fits,
    a_key_is_given,
    the_version_is_given,
    the_content_type_is_json,
    tools_are_given_for_tool_blocks,
    tool_names_fit_the_pattern,
    tool_names_are_unique,
    a_tool_schema_is_an_object,
    a_tool_schema_has_no_union_on_top,
    a_tool_schema_is_valid,
    property_names_fit_the_pattern,
    tool_choice_names_a_tool,
    not_every_tool_is_deferred,
    deferred_tools_have_no_cache_mark,
    the_thinking_budget_fits,
    thinking_leaves_sampling_alone,
    thinking_allows_no_forced_tool,
    thinking_allows_no_prefill,
    sampling_is_for_the_older_version,
    there_are_at_most_four_cache_marks,
    cache_marks_sit_on_content,
    longer_cache_marks_come_first,
)
