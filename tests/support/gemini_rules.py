"""What `generateContent` refuses: a request as rules see it, and the table of rules.

S2, S3 and S4 in the sources are sections of the measured wire (683 recorded exchanges), with the number of exchanges
that show it; R is a report of a refusal.
"""

import re
from base64 import b64decode
from binascii import Error
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final

from tests.support.messages_json import Json, as_list, as_number, as_object, as_text
from tests.support.strict_request import GONE, SHARED, Exchange, Item, Rule, StrictRequest, broken_rules, items_of, on
from tests.support.strict_schema import gemini_type_errors

DUMMIES: Final = ("c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=",)
"""What is taken in place of a signature: `skip_thought_signature_validator` in base64 (S4: 11 taken)."""
_DATA: Final = frozenset(
    {"text", "functionCall", "functionResponse", "inlineData", "fileData", "executableCode", "codeExecutionResult"}
    | {"toolCall", "toolResponse"}
)
_FILES: Final = frozenset({"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif", "application/pdf"})


class Memory:
    """The signatures that were served, each with the part that it came in."""

    def __init__(self) -> None:
        self.parts: dict[str, Json] = {}

    def remember(self, parts: Sequence[Json]) -> None:
        """Keep the signed parts of an answer."""
        for part in parts:
            if signature := as_text(part.get("thoughtSignature")):
                self.parts[signature] = {key: value for key, value in part.items() if key != "thoughtSignature"}


class Request(StrictRequest):
    """One request with its views."""

    tool_name = re.compile(r"^[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}\Z")
    schema_key = "parametersJsonSchema"
    not_on_top = ()

    def __init__(self, model: str, body: Json, headers: Mapping[str, str], memory: Memory | None = None) -> None:
        super().__init__(body, headers)
        self.model = model
        self.memory = Memory() if memory is None else memory

    @property
    def is_late(self) -> bool:
        """Whether the model wants signatures and levels, as those from the third on do."""
        return not re.match(r"gemini-[12]\b", self.model)

    @cached_property
    def contents(self) -> list[Item]:
        return items_of(self.body.get("contents"), "contents")

    @property
    def system(self) -> list[Item]:
        key = "systemInstruction"
        return [Item(key, as_object(self.body[key]))] if key in self.body else []

    @cached_property
    def tools(self) -> list[Item]:
        return [each for tool in self.all_tools for each in tool.each("functionDeclarations")]

    @cached_property
    def all_tools(self) -> list[Item]:
        return items_of(self.body.get("tools"), "tools")

    @property
    def hosted(self) -> list[Item]:
        """The tools that the provider runs."""
        return [tool for tool in self.all_tools if "functionDeclarations" not in tool.data]

    @cached_property
    def exchanges(self) -> Sequence[Exchange]:
        first = Item("", {})  # what answers nothing
        around = [first, *self.contents, first]
        return [Exchange(a.where, calls_of(a), responses_of(b)) for a, b in pairwise(around)]

    @cached_property
    def answered(self) -> list[tuple[Item, Item]]:
        """The calls, each with the response that stands where its own must."""
        return [pair for e in self.exchanges for pair in zip(e.calls, e.results, strict=False)]

    @cached_property
    def parts(self) -> list[Item]:
        return [part for content in self.contents for part in content.each("parts")]

    @property
    def config(self) -> Json:
        return as_object(self.body.get("generationConfig"))

    @property
    def thinking(self) -> Json:
        return as_object(self.config.get("thinkingConfig"))

    @property
    def calling(self) -> Json:
        return as_object(as_object(self.body.get("toolConfig")).get("functionCallingConfig"))


def calls_of(content: Item) -> list[Item]:
    """Return the calls of a content."""
    return [part.under("functionCall") for part in content.each("parts") if "functionCall" in part.data]


def responses_of(content: Item) -> list[Item]:
    """Return the responses of a content."""
    return [part.under("functionResponse") for part in content.each("parts") if "functionResponse" in part.data]


def judge(model: str, body: Json, headers: Mapping[str, str], *, memory: Memory | None = None) -> list[str]:
    """Return every violation in a request to a model; none means that the API would take it."""
    return broken_rules(RULES, Request(model, body, headers, memory))


def _is_of_the_other(part: Item, role: str) -> bool:
    is_models = bool({"functionCall", "thought", "thoughtSignature"} & part.data.keys())
    return (is_models and role != "model") or ("functionResponse" in part.data and role != "user")


def _is_no_object(result: Item) -> bool:
    return not isinstance(result.data.get("response"), dict) or len(result.under("response").data) > 1


def _unsigned_calls(request: Request) -> Iterator[Item]:
    for content in reversed(request.contents if request.is_late else ()):
        if content.role == "user" and not responses_of(content):
            return
        first = [part for part in content.each("parts") if "functionCall" in part.data][:1]
        yield from (part for part in first if not part.text("thoughtSignature"))


def _strange_signatures(request: Request) -> Iterator[str]:
    for part in request.parts:
        signature = part.text("thoughtSignature")
        if not signature or (signature in DUMMIES and "functionCall" in part.data):
            continue
        served = request.memory.parts.get(signature)
        if not _is_base64(signature):
            yield f"{part.where}.thoughtSignature: Base64 decoding failed"
        elif served is None:
            yield f"{part.where}: Corrupted thought signature."
        elif not _is_same(part.data, served):
            yield f"{part.where}: served {served}, came back {part.data}"


def _is_base64(text: str) -> bool:
    try:
        b64decode(text, validate=True)
    except Error:
        return False
    return True


def _is_same(part: Json, served: Json) -> bool:
    call, called = as_object(part.get("functionCall")), as_object(served.get("functionCall"))
    if called:  # where none was given, the id is the client's
        return call.get("name") == called.get("name") and call.get("args") == called.get("args", {})
    return {key: value for key, value in part.items() if key != "thoughtSignature"} == served


def _is_strange_file(part: Item) -> bool:
    inline = part.under("inlineData")
    kind = inline.text("mimeType")
    is_known = kind.startswith(("audio/", "text/", "video/")) or kind in _FILES
    return bool(inline.data) and not (is_known and _is_base64(inline.text("data")))


def _about(model: str, config: Json) -> Callable[[Request], object]:
    return lambda request: vars(request).update(model=model, body={**request.body, "generationConfig": config})


_FILE: Final = "contents.0.parts.1.inlineData"
_PART: Final = "contents.1.parts.1"
_RESPONSE: Final = "contents.2.parts.0.functionResponse"
_FUNCTION: Final = "tools.0.functionDeclarations.0"
_LEVELS: Final = ("MINIMAL", "LOW", "MEDIUM", "HIGH")
_THINKS: Final[Json] = {"thinkingConfig": {"thinkingLevel": "LOW"}}
_ANSWER: Final[Json] = {"functionResponse": {"id": "1", "name": "a", "response": {"output": "1"}}}

RULES: tuple[Rule[Request], ...] = (
    *SHARED,
    Rule(
        "A body has the types of google-genai, and no other key (S2: 400 `Unknown name`, R)",
        lambda r: gemini_type_errors(r.body),
        on(
            "files",
            {"model": "x"},
            {"generationConfig.max_tokens": 1},
            {"contents.0.parts.0.text": 7},
            {f"{_FILE}.data": 7},
            {"contents.0.content": []},
            {"generationConfig.thinkingConfig.thinkingLevel": "MAXIMAL"},
        ),
    ),
    # Contents
    Rule("There is a content (S3)", lambda r: not r.contents, on("plain text", {"contents": []}, {"contents": GONE})),
    Rule(
        "A role is user or model (S2: one 400)",
        lambda r: (content for content in r.contents if content.role not in ("user", "model")),
        on("parallel calls", {"contents.1.role": "assistant"}, {"contents.1.role": ""}),
    ),
    Rule(
        "The first and the last content are the user's (S3: 653 of 653)",
        lambda r: (content for content in (*r.contents[:1], *r.contents[-1:]) if content.role != "user"),
        on("said", {"contents.0": GONE}, {"contents.2": GONE}),
    ),
    Rule(
        "No content is without parts (S3: 653 of 653)",
        lambda r: (content for content in (*r.contents, *r.system) if not content.each("parts")),
        on("plain text", {"contents.0.parts": []}, {"systemInstruction": {"parts": []}}),
    ),
    Rule(
        "A part has one field of data (S2: 652 of 653)",
        lambda r: (part for part in r.parts if len(part.data.keys() & _DATA) != 1),
        on("plain text", {"contents.0.parts.0": {}}, {"contents.0.parts.0.fileData": {"fileUri": "x"}}),
    ),
    Rule(
        "An empty text stands only where a signature is on it (S3: `must have a text parameter`)",
        lambda r: (p for p in r.parts if p.data.get("text") == "" and "thoughtSignature" not in p.data),
        on("plain text", {"contents.0.parts.0.text": ""}),
    ),
    Rule(
        "Calls and thoughts are the model's, responses the user's (S3)",
        lambda r: (part for c in r.contents for part in c.each("parts") if _is_of_the_other(part, c.role)),
        on("parallel calls", {"contents.0.parts.0.thought": True}, {"contents.1.parts.+": _ANSWER}),
    ),
    Rule(
        "Calls come immediately after the user's content or responses (S3: 653 of 653)",
        lambda r: (content for before, content in pairwise(r.contents) if calls_of(content) and before.role != "user"),
        on("parallel calls", {"contents.0.role": "model"}),
    ),
    Rule(
        "No other part stands beside responses (S3: mixed 0; pydantic-ai#4210)",
        lambda r: (c for c in r.contents if 0 < len(responses_of(c)) < len(c.each("parts"))),
        on("parallel calls", {"contents.2.parts.+": {"text": "Hurry."}}),
    ),
    Rule(
        "All calls are answered in the next content, and nothing else (S3: 372 call turns)",
        lambda r: (exchange.where for exchange in r.exchanges if len(exchange.calls) != len(exchange.results)),
        on("without ids", {"contents.2.parts.+": _ANSWER}, {"contents.2.parts.0": {"text": "Hm."}}),
    ),
    Rule(
        "Names are repeated, in the order of the calls; ids are on both or on neither (S3: 230 and 27)",
        lambda r: (at for call, at in r.answered for key in ("name", "id") if call.data.get(key) != at.data.get(key)),
        on("parallel calls", {f"{_RESPONSE}.name": "b"}, {f"{_RESPONSE}.id": GONE}),
    ),
    Rule(
        "A response is an object, of `output` or of `error` (S3: 397 of 397)",
        lambda r: filter(_is_no_object, r.results),
        on("parallel calls", {f"{_RESPONSE}.response": GONE}, {f"{_RESPONSE}.response.error": "no"}),
    ),
    Rule(
        "Arguments are an object, and the name one of a tool (S2, S5: 291 of 291)",
        lambda r: (
            call
            for call in r.calls
            if not isinstance(call.data.get("args", {}), dict) or not r.tool_name.match(call.text("name"))
        ),
        on("parallel calls", {f"{_PART}.functionCall.args": None}, {f"{_PART}.functionCall.name": "2"}),
    ),
    # Signatures
    Rule(
        "The first call of each step of the current turn has a signature (S4: none of 122 lacks one)",
        _unsigned_calls,
        on("parallel calls", {f"{_PART}.thoughtSignature": GONE}),
    ),
    Rule(
        "A signature is one that was given, in its own part (S4: 354 returned), or stands for one on a call (11)",
        _strange_signatures,
        on(
            "parallel calls",
            {f"{_PART}.thoughtSignature": "anVuaw=="},
            {f"{_PART}.thoughtSignature": "not base64!"},
            {f"{_PART}.functionCall.args": {"n": 2}},
            {"contents.1.parts.2.thoughtSignature": "c2ln"},
            {"contents.1.parts.0": {"text": "joined", "thoughtSignature": DUMMIES[0]}},
        ),
    ),
    # Tools and settings
    Rule(
        "One element has all functions, and a list of tools has some (S2: 455)",
        lambda r: len(r.all_tools) > len(r.hosted) + 1 or r.body.get("tools") == [],
        on("plain text", {"tools.+": {"functionDeclarations": []}}, {"tools": []}),
    ),
    Rule(
        "A function has `parametersJsonSchema` without `$schema`, and no `parameters` beside it (S2, R)",
        lambda r: (t for t in r.tools if "parameters" in t.data or "$schema" in t.under("parametersJsonSchema").data),
        on(
            "plain text",
            {f"{_FUNCTION}.parameters": {"type": "OBJECT"}},
            {f"{_FUNCTION}.parametersJsonSchema.$schema": "x"},
        ),
    ),
    Rule(
        "A mode of calling needs functions (S2, R)",
        lambda r: bool(r.calling) and not r.tools,
        on("hosted", {"tools": GONE}),
    ),
    Rule(
        "The names of allowed functions are declared (S2, R)",
        lambda r: (
            {*map(as_text, as_list(r.calling.get("allowedFunctionNames")))} - {tool.text("name") for tool in r.tools}
        ),
        on("hosted", {"toolConfig.functionCallingConfig.allowedFunctionNames": ["c"]}),
    ),
    Rule(
        "A search of files names where they are (G file-search)",
        lambda r: (
            tool
            for tool in r.hosted
            if "fileSearch" in tool.data and not as_list(tool.under("fileSearch").data.get("fileSearchStoreNames"))
        ),
        on("hosted", {"tools.1": {"fileSearch": {"topK": 2}}}),
    ),
    Rule(
        "Hosted tools beside functions want a flag from 3.x on (S5: 7 taken), and 2.5 does not combine them (R)",
        lambda r: (
            bool(r.hosted and r.tools)
            and not (as_object(r.body.get("toolConfig")).get("includeServerSideToolInvocations") and r.is_late)
        ),
        on("hosted", {"toolConfig": GONE}, _about("gemini-2.5-flash", {})),
    ),
    Rule(
        "There is a level of thinking or a budget, never both (S2, R)",
        lambda r: {"thinkingLevel", "thinkingBudget"} <= r.thinking.keys(),
        on("files", {"generationConfig.thinkingConfig.thinkingBudget": 100}),
    ),
    Rule(
        "A level of thinking is known, and for models from 3.x on (S2, R)",
        lambda r: "thinkingLevel" in r.thinking and not (r.is_late and r.thinking["thinkingLevel"] in (None, *_LEVELS)),
        on("files", lambda r: r.thinking.update(thinkingLevel=""), _about("gemini-2.5-flash", _THINKS)),
    ),
    Rule(
        "The thinking of 2.5-pro is never off (R)",
        lambda r: r.thinking.get("thinkingBudget") == 0 and r.model.startswith("gemini-2.5-pro"),
        on("files", _about("gemini-2.5-pro", {"thinkingConfig": {"thinkingBudget": 0}})),
    ),
    Rule(
        "A temperature is 0 to 2 (S2: one 400)",
        lambda r: not 0 <= (as_number(r.config.get("temperature")) or 0) <= 2,
        on("files", {"generationConfig.temperature": -1}, {"generationConfig.temperature": 2.1}),
    ),
    Rule(
        "There are at most five stop sequences (R)",
        lambda r: len(as_list(r.config.get("stopSequences"))) > 5,
        on("files", {"generationConfig.stopSequences": [*"abcdef"]}),
    ),
    Rule(
        "A schema of the answer comes with its mime type (S2)",
        lambda r: (
            bool({"responseSchema", "responseJsonSchema"} & r.config.keys()) and "responseMimeType" not in r.config
        ),
        on("files", {"generationConfig.responseJsonSchema": {}}),
    ),
    Rule(
        "Before 3.x an answer with a mime type has no functions (R)",
        lambda r: "responseMimeType" in r.config and bool(r.tools) and not r.is_late,
        on("files", _about("gemini-2.5-flash", {"responseMimeType": "application/json"})),
    ),
    Rule(
        "Inline files are Base64 of pictures, PDF, texts, sounds and videos (S2)",
        lambda r: filter(_is_strange_file, r.parts),
        on("files", {f"{_FILE}.mimeType": "image/gif"}, {f"{_FILE}.data": "x.y"}),
    ),
    Rule(
        "A picture has at most 7 MB (V)",
        lambda r: (
            part
            for part in r.parts
            for inline in [part.under("inlineData")]
            if inline.text("mimeType").startswith("image/") and len(inline.text("data")) * 3 // 4 > 7_000_000
        ),
        on("files", {f"{_FILE}.data": "A" * 9_400_000}),
    ),
)
