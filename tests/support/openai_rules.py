"""What OpenAI's APIs refuse: a request as rules see it, what the server has said, and a table of rules for each API.

Deliberately not checked, because it depends on the model: which parameters a reasoning model refuses, and which efforts
it knows.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import orjson

from tests.support.messages_json import Json, as_list, as_object, as_text
from tests.support.strict_request import GONE, SHARED, Exchange, Item, Rule, StrictRequest, broken_rules, items_of, on
from tests.support.strict_schema import Api, openai_type_errors, without_marks

MAX_ID = 64
MIN_OUTPUT_TOKENS = 16

_PICTURE = re.compile(r"^(https?://|data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+=*\Z)")
_STRICT_KEYWORDS = frozenset(
    {"$defs", "$ref", "additionalProperties", "anyOf", "const", "definitions", "description", "enum", "format"}
    | {"exclusiveMaximum", "exclusiveMinimum", "items", "maxItems", "maximum", "minItems", "minimum", "multipleOf"}
    | {"pattern", "properties", "required", "title", "type"}
)
_STRICT_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
_PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs"}
_COMPARED = ("summary", "content", "encrypted_content", "call_id", "name", "arguments")

NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}\Z")


@dataclass(frozen=True, slots=True)
class Served:
    """One answer of Responses as it left the server."""

    items: tuple[Json, ...]
    stored: bool


class Memory:
    """All answers served so far."""

    def __init__(self) -> None:
        self.calls: defaultdict[str, list[Json]] = defaultdict(list)
        """The functions of Chat Completions by id of their call."""
        self.served: list[Served] = []

    def remember_calls(self, calls: Iterable[Json]) -> None:
        """Keep the calls of a chat answer."""
        for call in calls:
            self.calls[as_text(call.get("id"))].append(as_object(call.get("function")))

    def remember_items(self, items: Sequence[Json], *, stored: bool) -> None:
        """Keep the output of a response."""
        self.served.append(Served(tuple(items), stored))

    def found(self, item: Item) -> list[tuple[Served, int]]:
        """Return where an item was served: by its call id, else by its own id."""
        key = "call_id" if item.type == "function_call" else "id"
        wanted = item.text(key)
        return [
            (served, index)
            for served in self.served
            for index, each in enumerate(served.items)
            if wanted and each.get("type") == item.type and each.get(key) == wanted
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """How a compatible server differs from OpenAI's."""

    reasoning_field: str | None = None
    """The field of a chat message with the reasoning; it may come back. None: there is none."""
    longest_id: int | None = 40
    """How long the id of a call may be in Chat Completions. OpenAI takes 64 by now (jin-bo/agentao#321), older models
    and some gateways take 40. None: any length."""
    extensions: frozenset[str] = field(default_factory=frozenset[str])
    """Parameters that only this server knows."""
    takes_marks: bool = False
    """Whether parts of content and tools may have `cache_control`."""
    refused: frozenset[str] = field(default_factory=frozenset[str])
    """Fields of OpenAI's that this server does not know, and refuses."""
    exact_id: int | None = None
    """Of how many letters and digits the ids of calls must be; None: see `longest_id`."""
    replies_to_results: bool = False
    """Whether the user may speak only after the model has answered results."""
    reasoning_with_calls: bool = False
    """Whether each message with calls must have `reasoning_field`."""
    always_counts: bool = False
    """Whether streams tell their usage without being asked, with the chunk that ends them."""
    output_without_reasoning: bool = False
    """Whether the count of output tokens leaves out those of reasoning; the total has both."""
    thinks_in_content: bool = False
    """Whether reasoning comes as parts of the content."""
    good_end: str = "stop"
    """What is said of an answer that ended by itself."""


class Request(StrictRequest):
    """One request with its views. `headers` get lower-case names; `memory` holds what the server has said."""

    tool_name = NAME
    not_on_top = ("oneOf", "anyOf", "allOf", "enum", "not")

    def __init__(
        self,
        api: Api,
        body: Json,
        headers: Mapping[str, str],
        memory: Memory | None = None,
        service: Service | None = None,
    ) -> None:
        super().__init__(body, headers)
        self.api: Api = api
        self.memory = Memory() if memory is None else memory
        self.service = Service() if service is None else service
        self.items_key = "messages" if api == "chat" else "input"
        self.longest_id: float = MAX_ID
        if api == "chat":
            self.longest_id = math.inf if self.service.longest_id is None else self.service.longest_id
        self.call_key, self.result_key = ("id", "tool_call_id") if api == "chat" else ("call_id", "call_id")

    @cached_property
    def items(self) -> list[Item]:
        """The messages of Chat Completions, or the input of Responses, of which a string is one message."""
        given = self.body.get(self.items_key)
        if isinstance(given, str):
            return [Item("input", {"role": "user", "content": given})] if given else []
        return items_of(given, self.items_key)

    @cached_property
    def exchanges(self) -> Sequence[Exchange]:
        found = [Exchange("", [], [])]
        for item in self.items:
            if item.role == "tool" or item.type == "function_call_output":
                found[-1] = replace(found[-1], results=[*found[-1].results, item])
            elif item.type == "function_call" and not found[-1].results:
                found[-1] = replace(found[-1], calls=[*found[-1].calls, item])
            elif self.api == "chat" or item.role in ("user", "system", "developer") or found[-1].results:
                calls = [item] if item.type == "function_call" else item.each("tool_calls")
                found.append(Exchange(item.where, calls, []))
        return found

    @cached_property
    def functions(self) -> list[Item]:
        """What has the name and the arguments, of each call."""
        return [call.under("function") if call.type == "function" else call for call in self.calls]

    @cached_property
    def tools(self) -> list[Item]:
        tools = [tool for tool in items_of(self.body.get("tools"), "tools") if tool.type == "function"]
        return [tool.under("function") for tool in tools] if self.api == "chat" else tools

    @cached_property
    def hosted(self) -> list[Item]:
        """The tools that the provider runs."""
        return [each for each in items_of(self.body.get("tools"), "tools") if each.type not in ("function", "custom")]

    @cached_property
    def form(self) -> Item:
        """The form of the answer that is asked for; empty if there is none."""
        body = Item("", self.body)
        form = body.under("response_format").under("json_schema")
        form = form if form.data else body.under("text").under("format")
        return form if form.text("type") in ("", "json_schema") else Item("", {})

    @cached_property
    def strict(self) -> list[Item]:
        """The schemas that are strict, of tools and of the answer, and all schemas inside them."""
        asked = [tool.under("parameters") for tool in self.tools if tool.data.get("strict") is True]
        asked += [self.form.under("schema")] if self.form.data.get("strict") is True else []
        return [each for schema in asked for each in _walk(schema)]

    @cached_property
    def parts(self) -> list[Item]:
        """Every part of content in messages, items and results."""
        return [part for owner in self.items for key in ("content", "output") for part in owner.each(key)]


def judge(
    api: Api, body: Json, headers: Mapping[str, str], *, memory: Memory | None = None, service: Service | None = None
) -> list[str]:
    """Return every violation in a request; none means that the API would take it.

    `memory` holds the answers served before, which must come back unchanged.
    """
    return broken_rules(RULES[api], Request(api, body, headers, memory, service))


def is_object_text(value: object) -> bool:
    """Tell whether a value is the text of a JSON object."""
    try:
        return isinstance(value, str) and isinstance(orjson.loads(value), dict)
    except orjson.JSONDecodeError:
        return False


def _against_types(request: Request) -> list[str]:
    service = request.service
    echoed = () if service.reasoning_field is None or service.thinks_in_content else (service.reasoning_field,)
    body = as_object(without_marks(request.body)) if service.takes_marks else request.body
    return openai_type_errors(request.api, body, echoed=echoed, extensions=service.extensions)


def _silent_messages(request: Request) -> Iterator[Item]:
    for item in request.items:
        content = item.data.get("content")
        needs_none = item.role == "assistant" and (item.each("tool_calls") or item.text("refusal"))
        is_empty = content is None or content == [] or (content == "" and request.api == "responses")
        if item.role and is_empty and not needs_none:
            yield item


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


def _is_open(schema: Item) -> bool:
    types = schema.data.get("type")
    is_object = types == "object" or "object" in as_list(types) or "properties" in schema.data
    required = map(as_text, as_list(schema.data.get("required")))
    missing = as_object(schema.data.get("properties")).keys() - {*required}
    return is_object and (schema.data.get("additionalProperties") is not False or bool(missing))


def _is_no_picture(part: Item) -> bool:
    is_picture = part.type in ("image_url", "input_image") and not part.text("file_id")
    return is_picture and not _PICTURE.match(part.text("image_url") or part.under("image_url").text("url"))


def _has_misplaced_mark(message: Item) -> bool:
    says = [part for part in message.each("content") if part.type == "text" and part.text("text")]
    marked = [part for part in message.each("content") if "cache_control" in part.data]
    return "cache_control" in message.data or any(p not in says or message.role == "assistant" for p in marked)


def _is_same_call(function: Item, served: Json) -> bool:
    arguments = as_text(served.get("arguments"))
    unchanged = function.text("arguments") == arguments or not is_object_text(arguments)
    return unchanged and (function.text("name") == served.get("name") or not NAME.match(as_text(served.get("name"))))


def _is_same_item(item: Item, served: Json) -> bool:
    for key in _COMPARED:
        may_be_repaired = (key == "arguments" and not is_object_text(served.get(key))) or (
            key == "name" and not NAME.match(as_text(served.get(key)))
        )
        if not may_be_repaired and (served.get(key) or None) != (item.data.get(key) or None):
            return False
    return item.text("id") in ("", served.get("id"))


def _stands_after(before: Item, served: tuple[Json, ...], place: int) -> bool:
    led = served[place - 1] if place else {}
    return led.get("type") != "reasoning" or (before.type == "reasoning" and before.text("id") in ("", led.get("id")))


def _repeated_ids(request: Request) -> Iterator[str]:
    keys = [f"id {item.text('id')}" for item in request.items if item.text("id")]
    keys += [f"{item.type} with call_id {item.text('call_id')}" for item in request.items if item.text("call_id")]
    return (key for key, times in Counter(keys).items() if times > 1)


def _has_no_item_id(item: Item) -> bool:
    return item.data.get("id") is not None and not (
        item.text("id") and item.text("id").startswith(_PREFIXES.get(item.type, ""))
    )


def _was_led_to(item: Item) -> bool:
    return item.role == "assistant" if item.role else item.type not in ("", "function_call_output")


def _changed_items(request: Request) -> Iterator[str]:
    for item in request.items:
        places = request.memory.found(item) if item.type in ("reasoning", "function_call") else []
        if places and not any(_is_same_item(item, served.items[place]) for served, place in places):
            yield f"{item.where}: served {places[-1][0].items[places[-1][1]]}, came back {item.data}"


def _calls_without_reasoning(request: Request) -> Iterator[Item]:
    for before, item in pairwise([Item("", {}), *request.items]):
        places = request.memory.found(item) if item.type == "function_call" else []
        if places and not any(_stands_after(before, served.items, place) for served, place in places):
            yield item


def _speaks_with(service: Service) -> Callable[[Request], object]:
    return lambda request: vars(request).update(service=service)


_MARK: Json = {"cache_control": {"type": "ephemeral"}}
_MARKED: Json = {"type": "text", "text": "Hm.", **_MARK}
_INPUT: Json = {"type": "input_text", "text": "Hm."}
_OUTPUT: Json = {"type": "output_text", "text": "Hm.", "annotations": []}
_CALL: Json = {"type": "function_call", "call_id": "call_1", "name": "query", "arguments": '{"sql":"select 1"}'}

_COMMON_RULES: tuple[Rule[Request], ...] = (
    *SHARED,
    Rule(
        "A body has the type of the SDK, but for what the API's own messages bring (P api-reference)",
        _against_types,
        on("tool turn", {"thinking": 1}, {"tools.0": {"name": "query", "input_schema": {"type": "object"}}}),
    ),
    Rule(
        "A list of tools has some (runebookai/tome#87)",
        lambda r: r.body.get("tools") == [],
        on("plain text", {"tools": []}),
    ),
    Rule(
        "There is a message or item (CopilotKit/CopilotKit#529, P api-reference/responses)",
        lambda r: not r.items,
        on("plain text", lambda r: r.body.update({r.items_key: []})),
    ),
    Rule(
        "A message says something, but for one that calls (run-llama/llama_index#17555, vllm-project/vllm#49130)",
        _silent_messages,
        on("tool turn", lambda r: r.items[1].data.update(content=[]), lambda r: r.items[1].data.update(content=None)),
    ),
    Rule(
        "Ids of calls are neither empty nor too long (vercel/ai#5171, decolua/9router#393)",
        lambda r: (call for call in r.calls if not 0 < len(call.text(r.call_key)) <= r.longest_id),
        on(
            "tool turn",
            lambda r: r.calls[0].data.update({r.call_key: "c" * 65}),
            lambda r: r.calls[0].data.update({r.call_key: ""}),
        ),
    ),
    Rule(
        "The name in a call matches ^[a-zA-Z0-9_-]{1,64}$ (continuedev/continue#11645)",
        lambda r: (function for function in r.functions if not NAME.match(function.text("name"))),
        on("tool turn", lambda r: r.functions[0].data.update(name="db.q")),
    ),
    Rule(
        "Arguments are the text of an object; vLLM and llama.cpp parse it (vllm-project/vllm#43995, #48922)",
        lambda r: (function for function in r.functions if not is_object_text(function.data.get("arguments"))),
        on(
            "tool turn",
            lambda r: r.functions[0].data.update(arguments='{"sq'),
            lambda r: r.functions[0].data.update(arguments="[]"),
        ),
    ),
    Rule(
        "A strict schema has no words but those that are kept (P guides/structured-outputs)",
        lambda r: (schema for schema in r.strict if schema.data.keys() - _STRICT_KEYWORDS),
        on("strict", lambda r: r.schemas[0].data.update(default={}), lambda r: r.form.under("schema").data.update(x=1)),
    ),
    Rule(
        "A strict schema has no formats but those that are kept (P guides/structured-outputs)",
        lambda r: (schema for schema in r.strict if schema.data.get("format") not in (None, *_STRICT_FORMATS)),
        on("strict", lambda r: r.schemas[0].under("properties").data.update(sql={"type": "string", "format": "uri"})),
    ),
    Rule(
        "A reference in a strict schema stands alone (P guides/structured-outputs)",
        lambda r: (schema for schema in r.strict if "$ref" in schema.data and len(schema.data) > 1),
        on("strict", lambda r: r.schemas[0].under("properties").data.update(sql={"$ref": "#", "description": "More."})),
    ),
    Rule(
        "A strict schema is closed, and all its fields are required (P guides/structured-outputs)",
        lambda r: filter(_is_open, r.strict),
        on(
            "strict",
            lambda r: r.schemas[0].data.pop("additionalProperties"),
            lambda r: r.schemas[0].data.update(required=["sql"]),
            lambda r: r.schemas[0].data.update({"$defs": {"A": {"type": "object", "properties": {}}}}),
            lambda r: r.schemas[0].under("properties").data.update(sql={"type": "array", "items": {"type": "object"}}),
        ),
    ),
    Rule(
        "The form of an answer has a name (P guides/structured-outputs)",
        lambda r: bool(r.form.data) and not NAME.match(r.form.text("name")),
        on("strict", lambda r: r.form.data.update(name="my report")),
    ),
    Rule(
        "The form of an answer is an object at its top (P guides/structured-outputs)",
        lambda r: bool(r.form.data) and r.form.under("schema").text("type") != "object",
        on("strict", lambda r: r.form.under("schema").data.update(type="array")),
    ),
    Rule(
        "The parameter parallel_tool_calls needs tools (camel-ai/camel#3706)",
        lambda r: r.body.get("parallel_tool_calls") is not None and not as_list(r.body.get("tools")),
        on("plain text", {"parallel_tool_calls": True}),
    ),
    Rule(
        "The parameter stream_options needs stream: true (P api-reference/chat)",
        lambda r: r.body.get("stream_options") is not None and r.body.get("stream") is not True,
        on("plain text", {"stream_options": {}}),
    ),
    Rule(
        "A picture is a web address, or Base64 of PNG, JPEG, GIF or WebP (P guides/images-vision)",
        lambda r: filter(_is_no_picture, r.parts),
        on(
            "pictures",
            lambda r: r.parts[1].data.update(image_url="a.png"),
            lambda r: r.parts[1].data.update(image_url="data:image/bmp;base64,Qk0="),
        ),
    ),
)

_CHAT_RULES: tuple[Rule[Request], ...] = (
    Rule(
        "A sound is Base64 of WAV or MP3 (P guides/audio)",
        lambda r: (
            part
            for part in r.parts
            for sound in [part.under("input_audio")]
            if part.type == "input_audio" and not (sound.text("format") in ("wav", "mp3") and sound.text("data"))
        ),
        on("a sound", {"messages.0.content.1.input_audio.data": ""}),
    ),
    Rule(
        "Only models for searches search (P guides/tools-web-search)",
        lambda r: "web_search_options" in r.body and "-search" not in str(r.body.get("model")),
        on("plain text", {"web_search_options": {}}),
    ),
    Rule(
        "A list of calls has some (openai/openai-node#1341)",
        lambda r: (message for message in r.items if message.data.get("tool_calls") == []),
        on("a refusal", {"messages.1.tool_calls": []}),
    ),
    Rule(
        "A call comes back as it was served, broken arguments aside (P guides/function-calling)",
        lambda r: (
            f"{call}: served {served[-1]}, came back {call.data.get('function')}"
            for call in r.calls
            for served in [r.memory.calls.get(call.text("id"), [])]
            if served and not any(_is_same_call(call.under("function"), each) for each in served)
        ),
        on(
            "tool turn",
            {"messages.2.tool_calls.0.function.arguments": "{}"},
            {"messages.2.tool_calls.0.function.name": "other"},
        ),
    ),
    Rule(
        "At most four places are marked for the cache (pydantic/pydantic-ai#4604)",
        lambda r: len([p for p in (*r.parts, *items_of(r.body.get("tools"), "")) if "cache_control" in p.data]) > 4,
        on("plain text", {"messages.0.content": [_MARKED] * 5}),
    ),
    Rule(
        "Texts are marked for the cache, but the assistant's, and tools (earendil-works/pi#6941)",
        lambda r: filter(_has_misplaced_mark, r.items),
        on(
            "plain text",
            {"messages.0.cache_control": _MARK},
            {"messages.0.content": [{"type": "image_url", "image_url": {"url": "https://a.com"}, **_MARK}]},
            {"messages.0": {"role": "assistant", "content": [_MARKED]}},
        ),
    ),
)
SERVICE_RULES: tuple[Rule[Request], ...] = (
    Rule(
        "Some services refuse what they do not know (mistralai/platform-docs-public#7, dnakov/anon-kode#53)",
        lambda r: sorted(r.service.refused & r.body.keys()),
        on("tool turn", _speaks_with(Service(refused=frozenset({"tools"})))),
    ),
    Rule(
        "Mistral's ids are nine letters and digits (mistral-common, which checks requests of Mistral's API)",
        lambda r: (
            call
            for call in r.calls
            if r.service.exact_id and not re.fullmatch(f"[a-zA-Z0-9]{{{r.service.exact_id}}}", call.text("id"))
        ),
        on("tool turn", _speaks_with(Service(exact_id=9))),
    ),
    Rule(
        "No user's message follows results directly (Mistral's API: `Unexpected role 'user' after role 'tool'`)",
        lambda r: (
            message
            for before, message in pairwise(r.items)
            if r.service.replies_to_results and (before.role, message.role) == ("tool", "user")
        ),
        on("parallel calls", _speaks_with(Service(replies_to_results=True))),
    ),
    Rule(
        "DeepSeek refuses calls without reasoning while it reasons (P api-docs.deepseek.com thinking_mode)",
        lambda r: (
            message
            for message in r.items
            if r.service.reasoning_with_calls and message.each("tool_calls")
            if r.service.reasoning_field not in message.data
        ),
        on("tool turn", _speaks_with(Service(reasoning_field="reasoning_content", reasoning_with_calls=True))),
    ),
)
"""Those that OpenAI's own service does not have."""

_RESPONSES_RULES: tuple[Rule[Request], ...] = (
    Rule(
        "A longest answer has at least 16 tokens (vectorize-io/hindsight#58)",
        lambda r: (n := r.number("max_output_tokens")) is not None and n < MIN_OUTPUT_TOKENS,
        on("plain text", {"max_output_tokens": 15}),
    ),
    Rule(
        "A search of files names its stores (P guides/tools-file-search)",
        lambda r: (t for t in r.hosted if t.type == "file_search" and not as_list(t.data.get("vector_store_ids"))),
        on("hosted tools", {"tools.1.vector_store_ids": []}),
    ),
    Rule(
        "The parameter max_tool_calls needs hosted tools, and is at least 1 (P api-reference/responses)",
        lambda r: (n := r.number("max_tool_calls")) is not None and (n < 1 or not r.hosted),
        on("hosted tools", {"max_tool_calls": 0}, {"tools": GONE}),
    ),
    Rule(
        "No item, call or output comes twice (vercel/ai#13307, earendil-works/pi#9057)",
        _repeated_ids,
        on("reasoning", {"input.4.id": "rs_1"}, {"input.+": _CALL}),
    ),
    Rule(
        "The id of an item has its prefix, and characters (decolua/9router#393, nodetool-ai/nodetool#4252)",
        lambda r: filter(_has_no_item_id, r.items),
        on("reasoning", {"input.2.id": "call_1"}, {"input.2.id": ""}),
    ),
    Rule(
        "The assistant's parts are output_text and refusal, all others' input (jeremychone/rust-genai#119)",
        lambda r: (
            part
            for item in r.items
            for part in (item.each("content") if item.role else ())
            if (part.type in ("output_text", "refusal")) != (item.role == "assistant")
        ),
        on("tool turn", {"input.2.content": [_INPUT]}, {"input.1.content": [_OUTPUT]}),
    ),
    Rule(
        "Reasoning that was not stored comes with its encrypted content (vercel/ai#7543)",
        lambda r: (
            item
            for item in r.items
            if item.type == "reasoning" and not item.text("encrypted_content")
            if not any(served.stored for served, _ in r.memory.found(item))
        ),
        on("reasoning", {"input.1.encrypted_content": GONE}),
    ),
    Rule(
        "Reasoning is followed by what it led to (vercel/ai#7099)",
        lambda r: (
            item
            for item, following in pairwise([*r.items, Item("", {})])
            if item.type == "reasoning" and not _was_led_to(following)
        ),
        on("reasoning", {"input.5": GONE}, {"input.6": GONE, "input.5": GONE}),
    ),
    Rule(
        "A call that was served after reasoning comes back after it (continuedev/continue#11994)",
        _calls_without_reasoning,
        on("reasoning", {"input.1": GONE}, {"input.1.id": "rs_7"}),
    ),
    Rule(
        "Reasoning and calls come back as served, broken arguments aside (P guides/reasoning)",
        _changed_items,
        on(
            "reasoning",
            {"input.1.summary": []},
            {"input.1.encrypted_content": "eHh4"},
            {"input.2.arguments": "{}"},
            {"input.2.id": "fc_9"},
        ),
    ),
)

RULES: Mapping[Api, tuple[Rule[Request], ...]] = {
    "chat": (*_COMMON_RULES, *_CHAT_RULES, *SERVICE_RULES),
    "responses": (*_COMMON_RULES, *_RESPONSES_RULES),
}
