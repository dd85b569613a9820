"""What the Messages API refuses: a request as rules see it, and the table of rules.

Deliberately not checked, because real requests break them and are taken: that the first message is the user's, that
roles alternate, that ids of calls are unique in the whole history, that no text of an answer is one space where it has
others. Not checked either, because it depends on the model: prefill as such, and manual thinking on the newest models.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import dropwhile, pairwise

from tests.support.messages_json import Json, as_list, as_number, as_object, as_text
from tests.support.messages_memory import THINKING, Echo, Memory, comparable, digest
from tests.support.strict_request import GONE, SHARED, Exchange, Item, Rule, StrictRequest, broken_rules, items_of, on
from tests.support.strict_schema import messages_type_errors

MAX_CHARS = 5 * 1024 * 1024
_FORM_KEYWORDS = {
    *("$defs", "$ref", "additionalProperties", "anyOf", "const", "description", "enum", "format", "items"),
    *("properties", "required", "title", "type"),
}
_ID = re.compile(r"^[a-zA-Z0-9_-]+\Z")
_VERSION = re.compile(r"^\d{4}-\d{2}-\d{2}\Z")


@dataclass(frozen=True, slots=True)
class Turn:
    """One entry of `messages`, or consecutive ones of one role, merged, as the API merges them."""

    where: str
    role: str
    blocks: tuple[Item, ...]

    def of_type(self, *types: str) -> list[Item]:
        """Return the blocks of these types, in order."""
        return [block for block in self.blocks if block.type in types]

    def comparable(self) -> list[Json]:
        """Return the blocks without what a client may change."""
        return list(comparable(block.data for block in self.blocks))


NO_TURN = Turn("", "", ())


class Request(StrictRequest):
    """One request with its views. `headers` get lower-case names; `memory` holds what the server has said."""

    tool_name = re.compile(r"^[a-zA-Z0-9_-]{1,128}\Z")
    schema_key = "input_schema"
    not_on_top = ("anyOf", "oneOf", "allOf")
    result_key = "tool_use_id"

    def __init__(self, body: Json, headers: Mapping[str, str], memory: Memory | None = None) -> None:
        super().__init__(body, headers)
        self.memory = Memory() if memory is None else memory

    @cached_property
    def messages(self) -> list[Turn]:
        """The messages as sent; a string content is seen as one text block."""
        return [_message(message) for message in items_of(self.body.get("messages"), "messages")]

    @cached_property
    def turns(self) -> list[Turn]:
        """The messages as the API merges them."""
        turns: list[Turn] = []
        for message in self.messages:
            if turns and turns[-1].role == message.role:
                last = turns.pop()
                turns.append(Turn(last.where, last.role, last.blocks + message.blocks))
            else:
                turns.append(message)
        return turns

    @cached_property
    def exchanges(self) -> Sequence[Exchange]:
        return [
            Exchange(turn.where, turn.of_type("tool_use"), following.of_type("tool_result"))
            for turn, following in pairwise([NO_TURN, *self.turns, NO_TURN])
        ]

    @cached_property
    def echoes(self) -> list[tuple[Turn, Echo]]:
        """The answers of this server that the request sends back."""
        assistant = [turn for turn in self.turns if turn.role == "assistant" and self.memory]
        return [(turn, echo) for turn in assistant for echo in self.memory.echoes(turn.comparable())]

    @cached_property
    def tools(self) -> list[Item]:
        return items_of(self.body.get("tools"), "tools")

    @cached_property
    def deferred(self) -> list[Item]:
        """The tools that are not in the prompt until a result names them."""
        return [tool for tool in self.tools if tool.data.get("defer_loading") is True]

    @cached_property
    def schemas(self) -> list[Item]:
        return [tool.under("input_schema") for tool in self.tools if tool.data.get("type") in (None, "custom")]

    @property
    def last(self) -> Turn:
        """The last turn."""
        return self.turns[-1] if self.turns else NO_TURN

    @property
    def thinking(self) -> str:
        """The type of thinking that is asked for; empty if none."""
        kind = as_text(as_object(self.body.get("thinking")).get("type"))
        return "" if kind == "disabled" else kind

    @cached_property
    def form(self) -> list[Json]:
        """The schema that the answer must have, and all schemas inside it."""
        schema = as_object(as_object(as_object(self.body.get("output_config")).get("format")).get("schema"))
        return [*_schemas(schema)] if schema else []

    @property
    def continues_a_pause(self) -> bool:
        """Whether the last message is a paused answer, to be continued by the model."""
        if self.last.role != "assistant":
            return False
        was_paused = any(turn is self.last and echo.served.paused for turn, echo in self.echoes)
        return was_paused or (bool(self.last.blocks) and is_server_side(self.last.blocks[-1]))

    @cached_property
    def cacheable(self) -> list[Item]:
        """Every place that may carry a cache mark, in the order in which the cache reads them."""
        places = [*self.tools, *items_of(self.body.get("system"), "system")]
        for message in self.messages:
            for block in message.blocks:
                places += [*nested(block), block]
        return places

    def blocks(self, *types: str, role: str = "") -> list[Item]:
        """Return the blocks of these types in all turns, or in those of one role."""
        return [block for turn in self.turns if role in ("", turn.role) for block in turn.of_type(*types)]

    def prefix(self, turn: Turn | None = None, start: int = 0) -> str:
        """Fingerprint what the model read: system, tools and blocks, up to `start` of `turn` if given."""
        parts: list[object] = [self.body.get("system")]
        parts += comparable(tool.data for tool in self.tools)
        for each in self.turns:
            blocks = each.comparable()
            parts += [(each.role, block) for block in (blocks[:start] if each is turn else blocks)]
            if each is turn:
                break
        return digest(parts)


def judge(
    body: Json, headers: Mapping[str, str], *, memory: Memory | None = None, bind_thinking: bool = False
) -> list[str]:
    """Return every violation in a request; none means that the API would take it.

    `memory` holds the answers served before, which must come back unchanged; `bind_thinking` adds the rule of the
    newest models that nothing before a thinking block changes.
    """
    request = Request(body, headers, memory)
    return broken_rules(RULES + RULES_OF_BOUND_THINKING if bind_thinking else RULES, request)


def nested(block: Item) -> list[Item]:
    """Return the blocks inside a tool result."""
    return block.each("content") if block.type == "tool_result" else []


def is_server_side(block: Item) -> bool:
    """Tell whether a block is a call or a result of a tool that the provider runs."""
    return block.type == "server_tool_use" or is_server_result(block)


def is_server_result(block: Item) -> bool:
    """Tell whether a block is the result of a tool that the provider ran."""
    return block.type.endswith("_tool_result")


def _message(message: Item) -> Turn:
    content = message.data.get("content")
    if isinstance(content, str):
        blocks = [Item(f"{message.where}.content", {"text": content, "type": "text"})] if content else []
    else:
        blocks = items_of(as_list(content), f"{message.where}.content")
    return Turn(message.where, message.role, tuple(blocks))


def _against_types(request: Request) -> list[str]:
    errors = messages_type_errors(request.body)
    if errors and any(request.memory.knows(block.data) for message in request.messages for block in message.blocks):
        messages: list[object] = []
        for message in map(as_object, as_list(request.body.get("messages"))):
            content = message.get("content")
            if isinstance(content, list):
                content = [block for block in as_list(message["content"]) if not request.memory.knows(as_object(block))]
            messages.append({**message, "content": content})
        return messages_type_errors({**request.body, "messages": messages})
    return errors


def _budget(request: Request) -> float | None:
    thinking = as_object(request.body.get("thinking"))
    return as_number(thinking.get("budget_tokens")) if request.thinking == "enabled" else None


def _marked(places: Iterable[Item]) -> list[Item]:
    return [place for place in places if as_object(place.data.get("cache_control"))]


def _is_empty(block: Item) -> bool:
    return block.type == "text" and not block.text("text")


def _says_nothing(block: Item) -> bool:
    return block.type == "text" and not block.text("text").strip()


def _schemas(schema: Json) -> Iterator[Json]:
    yield schema
    parts = [*as_object(schema.get("properties")).values(), *as_object(schema.get("$defs")).values()]
    for inner in (*parts, *as_list(schema.get("anyOf")), *([schema["items"]] if "items" in schema else [])):
        yield from _schemas(as_object(inner))


def _circles(form: Sequence[Json]) -> Iterator[str]:
    definitions = as_object(form[0].get("$defs")) if form else {}

    def reached(inside: object, seen: frozenset[str]) -> frozenset[str]:
        for inner in _schemas(as_object(inside)):
            name = as_text(inner.get("$ref")).removeprefix("#/$defs/")
            seen = reached(definitions.get(name), seen | {name}) if name and name not in seen else seen
        return seen

    return (name for name in definitions if name in reached(definitions[name], frozenset()))


def _owner(block: Item, role: str) -> str:
    if block.type == "tool_result":
        return "user"
    return "assistant" if block.type in (*THINKING, "tool_use") or is_server_side(block) else role


def _lacks_content(result: Item) -> bool:
    content = result.data.get("content")
    return not as_text(content) and (not content or all(map(_is_empty, nested(result))))


def _unfit_references(request: Request) -> Iterator[Item]:
    deferred = [tool.text("name") for tool in request.deferred]
    for result in request.blocks("tool_result"):
        references = [block for block in nested(result) if block.type == "tool_reference"]
        yield from references if len(references) < len(nested(result)) else ()
        yield from (block for block in references if block.text("tool_name") not in deferred)


def _domains(tool: Item) -> tuple[list[object], list[object]]:
    is_search = tool.text("type").startswith("web_search_")
    allowed, blocked = as_list(tool.data.get("allowed_domains")), as_list(tool.data.get("blocked_domains"))
    return (allowed, blocked) if is_search else ([], [])


def _results_without_server_call(request: Request) -> Iterator[Item]:
    called: set[str] = set()
    for block in [block for turn in request.turns for block in turn.blocks]:
        if block.type == "server_tool_use":
            called.add(block.text("id"))
        elif is_server_result(block) and block.text("tool_use_id") not in called:
            yield block


def _is_open(turn: Turn) -> bool:
    closed = {block.text("tool_use_id") for block in turn.blocks if is_server_result(block)}
    return any(block.text("id") not in closed for block in turn.of_type("server_tool_use"))


def _lacks_thinking_first(request: Request) -> bool:
    answers: list[Turn] = []  # the assistant's, since the user last spoke without sending results
    for turn in request.turns:
        if turn.role == "assistant":
            answers.append(turn)
        elif turn.role == "user" and not turn.of_type("tool_result"):
            answers.clear()
    if request.thinking != "enabled" or not any(turn.of_type("tool_use") for turn in answers):
        return False
    served = [echo for turn, echo in request.echoes if turn is answers[0] and not echo.served.is_bare]
    begins = bool(answers[0].blocks) and answers[0].blocks[0].type in THINKING
    return not begins and not any(echo.start == 0 for echo in served)


def _changed_answers(request: Request) -> Iterator[str]:
    for turn, echo in request.echoes:
        if echo.served.is_bare and echo.served.prefix in ("", request.prefix(turn, echo.start)):
            yield f"{turn.where}: its thinking is gone, and nothing before it has changed"
        if echo.changed is not None:
            blocks, index = turn.comparable(), echo.start + echo.changed
            found = blocks[index] if 0 <= index < len(blocks) else None
            yield f"{turn.where}: served {echo.served.blocks[echo.changed]}, came back {found}"[:500]


_FIRST, _LAST = "messages.1.content.0", "messages.2.content"
_FORM = "output_config.format.schema"
_MARK: Json = {"type": "ephemeral"}
_MANUAL: Json = {"type": "enabled", "budget_tokens": 2048}
_CALL: Json = {"type": "tool_use", "id": "t9", "name": "query", "input": {}}
_OF_OPENAI: Json = {"type": "function", "function": {"name": "query", "parameters": {"type": "object"}}}

RULES: tuple[Rule[Request], ...] = (
    *SHARED,
    Rule(
        "A body has the type of the SDK (P api/messages); a block that comes back as served has it, too",
        _against_types,
        on(
            "tool turn",
            {"max_tokens": GONE},
            {"reasoning": "high"},
            {"messages.0.role": "tool"},
            {f"{_FIRST}.index": 1},
            {"messages.1.content.1.input": "{}"},
            {"tools.0": _OF_OPENAI},
            {f"{_LAST}.0.content": [_CALL]},
        ),
    ),
    Rule(
        "The version is a date (P api/overview)",
        lambda r: not _VERSION.match(r.headers.get("anthropic-version", "")),
        on("plain text", {"@anthropic-version": ""}, {"@anthropic-version": "v1"}),
    ),
    # Tools
    Rule(
        "A history with calls or results needs tools (P agents-and-tools/tool-use/define-tools)",
        lambda r: bool(r.blocks("tool_use", "tool_result")) and not r.tools,
        on("tool turn", {"tools": GONE}),
    ),
    Rule(
        "At least one tool is in the prompt (P tool-use/tool-search-tool)",
        lambda r: bool(r.tools) and len(r.deferred) == len(r.tools),
        on("deferred tool", {"tools.0.defer_loading": True}),
    ),
    Rule(
        "What is not in the prompt ends no cached beginning (P tool-use/tool-use-with-prompt-caching)",
        lambda r: _marked(r.deferred),
        on("deferred tool", {"tools.1.cache_control": _MARK}),
    ),
    Rule(
        "A reference names a deferred tool, and stands among its like (P tool-use/tool-search-tool)",
        _unfit_references,
        on("deferred tool", {f"{_LAST}.0.content.0.tool_name": "other"}, {"tools.1.defer_loading": GONE}),
    ),
    Rule(
        "A search has one list of domains at most (P agents-and-tools/tool-use/web-search-tool)",
        lambda r: (tool for tool in r.tools if all(_domains(tool))),
        on("server tool", {"tools.0.allowed_domains": ["a.com"], "tools.0.blocked_domains": ["b.com"]}),
    ),
    Rule(
        "The domains of a search have no scheme (P agents-and-tools/tool-use/web-search-tool)",
        lambda r: (tool for tool in r.tools if any("://" in str(each) for list in _domains(tool) for each in list)),
        on("server tool", {"tools.0.allowed_domains": ["https://a.com"]}),
    ),
    # The form of an answer
    Rule(
        "A form has no circle (P structured-outputs)",
        lambda r: _circles(r.form),
        on("a form", {f"{_FORM}.$defs.Row.properties": {"next": {"$ref": "#/$defs/Row"}}}),
    ),
    Rule(
        "A form has no bounds (P structured-outputs)",
        lambda r: any(schema.keys() - _FORM_KEYWORDS for schema in r.form),
        on("a form", {f"{_FORM}.properties.total.minimum": 0}),
    ),
    Rule(
        "The objects of a form are closed (P structured-outputs)",
        lambda r: any(s.get("type") == "object" and s.get("additionalProperties") is not False for s in r.form),
        on("a form", {f"{_FORM}.additionalProperties": GONE}),
    ),
    Rule(
        "A form says of what type its parts are (P structured-outputs)",
        lambda r: any(not s.keys() & {"$ref", "anyOf", "const", "enum", "type"} for s in r.form),
        on("a form", {f"{_FORM}.properties.total": {"description": "Anything."}}),
    ),
    # Files
    Rule(
        "A picture has at most 5 MB as Base64 (P vision)",
        lambda r: (b for b in r.blocks("image") if len(b.under("source").text("data")) > MAX_CHARS),
        on("images", {"messages.0.content.0.source.data": "A" * (MAX_CHARS + 4)}),
    ),
    # Thinking
    Rule(
        "A budget is at least 1024 (P extended-thinking)",
        lambda r: (n := _budget(r)) is not None and n < 1024,
        on("thinking turn", {"thinking.budget_tokens": 1023}),
    ),
    Rule(
        "A budget is less than max_tokens (P extended-thinking)",
        lambda r: (n := _budget(r)) is not None and n >= (r.number("max_tokens") or math.inf),
        on("thinking turn", {"thinking.budget_tokens": 4096}),
    ),
    Rule(
        "With manual thinking a tool cannot be forced (P extended-thinking)",
        lambda r: r.thinking == "enabled" and as_object(r.body.get("tool_choice")).get("type") in ("any", "tool"),
        on("thinking turn", {"tool_choice": {"type": "any"}}),
    ),
    Rule(
        "With thinking the last message is not the assistant's, but for a paused one (P extended-thinking)",
        lambda r: bool(r.thinking) and r.last.role == "assistant" and not r.continues_a_pause,
        on("prefill", {"thinking": _MANUAL}, {"thinking": {"type": "adaptive"}}),
    ),
    Rule(
        "With manual thinking a turn that calls tools begins with its thinking (anomalyco/opencode#3077)",
        _lacks_thinking_first,
        on("thinking turn", {_FIRST: GONE}, {_FIRST: {"type": "text", "text": "I look."}}),
    ),
    Rule(
        "Thinking comes back with its signature (anthropics/claude-code#63203)",
        lambda r: (block for block in r.blocks("thinking") if not block.text("signature")),
        on("thinking turn", {f"{_FIRST}.signature": ""}),
    ),
    Rule(
        "An answer does not end in thinking (tailcallhq/forgecode#3071)",
        lambda r: (t.where for t in r.turns if t.role == "assistant" and t.blocks and t.blocks[-1].type in THINKING),
        on("thinking turn", {"messages.1.content.+": {"type": "redacted_thinking", "data": "b3BhcXVl"}}),
    ),
    # The cache
    Rule(
        "At most four places are marked, in tools, system and messages (P prompt-caching)",
        lambda r: len(_marked(r.cacheable)) > 4,
        on("four cache marks", {f"{_FIRST}.cache_control": _MARK}),
    ),
    Rule(
        "Thinking and empty text are not marked (P prompt-caching, tghamm/Anthropic.SDK#50)",
        lambda r: (block for block in _marked(r.cacheable) if _is_empty(block) or block.type in THINKING),
        on("thinking turn", {f"{_FIRST}.cache_control": _MARK}),
    ),
    # Texts
    Rule(
        "There is a message (langchain-ai/langchain#31657)",
        lambda r: not r.messages,
        on("plain text", {"messages": []}),
    ),
    Rule(
        "Only a final answer is without content (anthropics/claude-code#6774)",
        lambda r: (m.where for m in r.messages if not m.blocks and not (m is r.messages[-1] and m.role == "assistant")),
        on("plain text", {"messages.0.content": ""}, {"messages.0.content": []}),
    ),
    Rule(
        "Text is not empty, in the system prompt and results neither (anthropics/claude-code#59812)",
        lambda r: filter(_is_empty, r.cacheable),
        on("four cache marks", {"system.0.text": ""}, {f"{_LAST}.0.content.0.text": ""}),
    ),
    Rule(
        "A user's text has something but white space (home-assistant/core#175637); the assistant's need not",
        lambda r: (block for block in r.blocks("text", role="user") if _says_nothing(block)),
        on("plain text", {"messages.0.content": " \n"}),
    ),
    Rule(
        "Beside thinking an answer has something but white space (anomalyco/opencode#31259)",
        lambda r: (
            turn.where
            for turn in r.turns
            for others in [[block for block in turn.blocks if block.type not in THINKING]]
            if turn.role == "assistant" and others and all(map(_says_nothing, others))
        ),
        on("one space in an answer", {"messages.1.content.1": GONE}, {"messages.1.content": " \n"}),
    ),
    Rule(
        "A prefill does not end in white space (langchain-ai/langchain#35073, crewAIInc/crewAI#4538)",
        lambda r: (
            block
            for block in r.last.blocks[-1:]
            if r.last.role == "assistant" and not r.continues_a_pause and block.text("text")[-1:].isspace()
        ),
        on("prefill", {f"{_FIRST}.text": "The best seller was "}),
    ),
    # Calls and results
    Rule(
        "Calls and thinking are the assistant's, results the user's (P api/messages)",
        lambda r: (b for message in r.messages for b in message.blocks if _owner(b, message.role) != message.role),
        on("tool turn", {"messages.2.role": "assistant"}, {"messages.1.role": "user"}),
    ),
    Rule(
        "Results stand before other content (P handle-tool-calls, anthropics/anthropic-sdk-typescript#653)",
        lambda r: (
            block
            for turn in r.turns
            for block in dropwhile(lambda block: block.type == "tool_result", turn.blocks)
            if turn.role == "user" and block.type == "tool_result"
        ),
        on("tool turn", {_LAST: [{"type": "text", "text": "Here:"}, {"type": "tool_result", "tool_use_id": "t1"}]}),
    ),
    Rule(
        "Ids match ^[a-zA-Z0-9_-]+$ (P api/messages)",
        lambda r: (
            block
            for key, type in (("id", "tool_use"), ("tool_use_id", "tool_result"))
            for block in r.blocks(type)
            if not _ID.match(block.text(key))
        ),
        on(
            "tool turn",
            {"messages.1.content.1.id": "call.1", f"{_LAST}.0.tool_use_id": "call.1"},
            {"messages.1.content.1.id": "", f"{_LAST}.0.tool_use_id": ""},
        ),
    ),
    Rule(
        "A result with `is_error` says what went wrong (an error text of the API)",
        lambda r: (b for b in r.blocks("tool_result") if b.data.get("is_error") is True and _lacks_content(b)),
        on("parallel calls", {f"{_LAST}.1.content": ""}, {f"{_LAST}.1.content": []}),
    ),
    Rule(
        "The result of a server tool follows its call (anthropics/claude-code#64383)",
        _results_without_server_call,
        on("server tool", {_FIRST: GONE}),
    ),
    Rule(
        "While a server tool is still to run, the user only sends results (P tool-use/server-tools)",
        lambda r: (
            next.where
            for turn, next in pairwise(r.turns)
            if _is_open(turn) and any(block.type != "tool_result" for block in next.blocks)
        ),
        on("server tool", {"messages.1.content.1": GONE}),
    ),
    Rule(
        "Answers come back unchanged (anthropics/claude-code#19539, #63203)",
        # Thinking is left out where what was before it has changed (the SDK's thinking block binding), and only there.
        # A call whose id was in the conversation before may have another: the signature binds the thinking only.
        _changed_answers,
        on(
            "thinking turn",
            {f"{_FIRST}.thinking": "A query is fine."},
            {f"{_FIRST}.signature": "Zm9yZ2Vk"},
            {_FIRST: GONE},
            {"messages.1.content.1.text": "I'll look."},
            {"messages.1.content.2.input.limit": 10},
        ),
    ),
)
RULES_OF_BOUND_THINKING: tuple[Rule[Request], ...] = (
    Rule(
        "Nothing before a thinking block changes (the SDK's thinking block binding)",
        lambda r: (
            turn.where
            for turn, echo in r.echoes
            if any(block.get("type") in THINKING for block in echo.served.blocks)
            if echo.changed is None and r.prefix(turn, echo.start) != echo.served.prefix
        ),
        on("thinking turn", {"system": "Be quick."}),
    ),
)
