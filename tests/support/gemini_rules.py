"""The judge of Gemini requests: all rules of `generateContent` in order, and the pure function that applies them.

Types come from `google-genai`, rules that other providers have as well from `strict_request.py`. Each rule yields one
text per fault and names its source: S2, S3 and S4 are the sections of the measured wire (683 recorded exchanges), with
the number of exchanges that show it; R is a report of a refusal.
"""

import base64
import binascii
import itertools
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import Final

from pydantic import TypeAdapter, ValidationError

from tests.support.messages_json import Json, as_list, as_number, as_object, as_text
from tests.support.strict_request import SHARED_RULES, Exchange, Item, Rule, StrictRequest, broken_rules, items_of
from tests.support.strict_request import rules_of as _rules_of

DUMMIES: Final = ("c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=",)
"""What is taken in place of a signature: `skip_thought_signature_validator` in base64 (S4: 11 taken)."""
_DATA: Final = frozenset(
    {"text", "functionCall", "functionResponse", "inlineData", "fileData", "executableCode", "codeExecutionResult"}
    | {"toolCall", "toolResponse"}
)
_FILES: Final = frozenset({"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif", "application/pdf"})
_FIELDS: Final = frozenset(
    {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings", "cachedContent"}
    | {"labels", "serviceTier"}
)


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
    call_key = result_key = "id"

    def __init__(self, model: str, body: Json, headers: Mapping[str, str], memory: Memory) -> None:
        super().__init__(body, headers)
        self.model = model
        self.memory = memory

    @property
    def is_late(self) -> bool:
        """Whether the model wants signatures and levels, as those from the third on do."""
        return not re.match(r"gemini-[12]\b", self.model)

    @cached_property
    def contents(self) -> list[Item]:
        return items_of(self.body.get("contents"), "contents")

    @cached_property
    def tools(self) -> list[Item]:
        return [
            each for tool in items_of(self.body.get("tools"), "tools") for each in tool.each("functionDeclarations")
        ]

    @cached_property
    def exchanges(self) -> Sequence[Exchange]:
        first = Item("", {})  # what answers nothing
        around = [first, *self.contents, first]
        return [Exchange(a.where, calls_of(a), responses_of(b)) for a, b in itertools.pairwise(around)]

    @property
    def parts(self) -> list[Item]:
        return [part for content in self.contents for part in content.each("parts")]

    @property
    def config(self) -> Json:
        return as_object(self.body.get("generationConfig"))


def calls_of(content: Item) -> list[Item]:
    """Return the calls of a content."""
    return [part.under("functionCall") for part in content.each("parts") if "functionCall" in part.data]


def responses_of(content: Item) -> list[Item]:
    """Return the responses of a content."""
    return [part.under("functionResponse") for part in content.each("parts") if "functionResponse" in part.data]


def judge(model: str, body: Json, headers: Mapping[str, str], *, memory: Memory | None = None) -> list[str]:
    """Return every violation in a request to a model, each as `rule: text`; none means that the API would take it."""
    return broken_rules(RULES, Request(model, body, headers, memory or Memory()))


# -- types -------------------------------------------------------------------------------------------------------------


@cache
def _types() -> Mapping[str, TypeAdapter[object]]:
    from google.genai import types  # noqa: PLC0415 - it takes seconds; who judges nothing needs it not

    return {
        "contents": TypeAdapter(list[types.Content]),
        "systemInstruction": TypeAdapter(types.Content),
        "tools": TypeAdapter(list[types.Tool]),
        "toolConfig": TypeAdapter(types.ToolConfig),
        "generationConfig": TypeAdapter(types.GenerationConfig),
        "safetySettings": TypeAdapter(list[types.SafetySetting]),
    }


def prepare() -> None:
    """Load the official types, which takes long."""
    _types()


def type_errors(body: Json) -> list[str]:
    """Return what the types of `google-genai` have against a body, each error with its path."""
    found: list[str] = [f"{name}: unknown name" for name in sorted(body.keys() - _FIELDS)]
    for name, adapter in _types().items():
        if name in body:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")  # so the types tell of a word that no enum has
                    adapter.validate_python(body[name], by_alias=True, by_name=False)
            except UserWarning as warning:
                found.append(f"{name}: {warning}")
            except ValidationError as error:
                errors = error.errors(include_url=False)
                found += [f"{name}.{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in errors]
    return found


def types_fit(request: Request) -> Iterator[str]:
    """The body has the types of google-genai 3.4.0, and no other key (S2: 400 "Unknown name", R)."""
    yield from type_errors(request.body)


# -- contents ----------------------------------------------------------------------------------------------------------


def there_is_a_content(request: Request) -> Iterator[str]:
    """At least one content (S3)."""
    if not request.contents:
        yield "contents: contents is not specified"


def roles_are_known(request: Request) -> Iterator[str]:
    """A role is user or model (S2: one 400)."""
    for content in request.contents:
        if content.role not in ("user", "model"):
            yield f"{content.where}: Please use a valid role: user, model."


def the_user_begins_and_ends(request: Request) -> Iterator[str]:
    """The first and the last content are the user's (S3: 653 of 653)."""
    if [content.role for content in (*request.contents[:1], *request.contents[-1:])] not in ([], ["user", "user"]):
        yield "contents: single turn requests end with a user role"


def contents_have_parts(request: Request) -> Iterator[str]:
    """No content without parts (S3: 653 of 653)."""
    system = Item("systemInstruction", as_object(request.body.get("systemInstruction")))
    for content in [*request.contents, *([system] if "systemInstruction" in request.body else [])]:
        if not content.each("parts"):
            yield f"{content.where}: must include at least one parts field"


def a_part_has_one_data_field(request: Request) -> Iterator[str]:
    """One data field per part (S2: 652 of 653)."""
    for part in request.parts:
        if len(found := sorted(part.data.keys() & _DATA)) != 1:
            yield f"{part.where}: must have exactly one data field, has {found}"


def texts_say_something(request: Request) -> Iterator[str]:
    """An empty text stands only where a signature is on it (S3: "must have a text parameter")."""
    for part in request.parts:
        if part.data.get("text") == "" and "thoughtSignature" not in part.data:
            yield f"{part.where}: must have a text parameter"


def only_the_model_calls_and_thinks(request: Request) -> Iterator[str]:
    """Calls and thoughts are the model's, responses the user's (S3)."""
    for content in request.contents:
        for part in content.each("parts"):
            is_models = bool({"functionCall", "thought", "thoughtSignature"} & part.data.keys())
            if (is_models and content.role != "model") or ("functionResponse" in part.data and content.role != "user"):
                yield f"{part.where}: {sorted(part.data)} in a content of the {content.role}"


def a_turn_of_calls_follows_the_user(request: Request) -> Iterator[str]:
    """A call turn comes immediately after a user turn or after a function response turn (S3: 653 of 653)."""
    for before, content in zip(request.contents, request.contents[1:], strict=False):
        if calls_of(content) and before.role != "user":
            yield f"{content.where}: function call turn comes immediately after a user turn or a function response turn"


def responses_stand_alone(request: Request) -> Iterator[str]:
    """No other part beside responses (S3: mixed 0; pydantic-ai#4210)."""
    for content in request.contents:
        if responses_of(content) and len(responses_of(content)) != len(content.each("parts")):
            yield f"{content.where}: function responses beside other parts"


def there_are_as_many_responses_as_calls(request: Request) -> Iterator[str]:
    """All calls are answered in the next content (S3: 372 call turns)."""
    for exchange in request.exchanges:
        if len(exchange.calls) != len(exchange.results):
            yield (
                f"{exchange.where}: the number of function response parts is not equal to the number of function call"
                f" parts: {len(exchange.results)}, {len(exchange.calls)}"
            )


def responses_bear_the_names_of_their_calls(request: Request) -> Iterator[str]:
    """The name is repeated, in the order of the calls; ids are on both or on neither (S3: 230 and 27)."""
    for exchange in request.exchanges:
        for call, response in zip(exchange.calls, exchange.results, strict=False):
            for key in ("name", "id"):
                if call.data.get(key) != response.data.get(key):
                    yield f"{response.where}.{key}: {response.data.get(key)!r}, not {call.data.get(key)!r}"


def a_response_is_an_object(request: Request) -> Iterator[str]:
    """`response` is an object, of `output` or of `error` (S3: 397 of 397)."""
    for exchange in request.exchanges:
        for result in exchange.results:
            if not isinstance(result.data.get("response"), dict) or len(as_object(result.data["response"])) > 1:
                yield f"{result.where}.response: {result.data.get('response')!r}"


def arguments_are_an_object(request: Request) -> Iterator[str]:
    """`args` is an object, and the name one of a tool (S2, S5: 291 of 291)."""
    for exchange in request.exchanges:
        for call in exchange.calls:
            if not isinstance(call.data.get("args", {}), dict) or not Request.tool_name.match(call.text("name")):
                yield f"{call.where}: {call.data!r}"


# -- signatures --------------------------------------------------------------------------------------------------------


def calls_of_the_turn_are_signed(request: Request) -> Iterator[str]:
    """The first call of each step of the current turn has a signature (S4: none of 122 lacks one)."""
    if not request.is_late:
        return
    for content in reversed(request.contents):
        if content.role == "user" and not responses_of(content):
            return
        for part in [part for part in content.each("parts") if "functionCall" in part.data][:1]:
            if not part.text("thoughtSignature"):
                name = part.under("functionCall").text("name")
                yield f"{part.where}: Function call is missing a thought_signature in functionCall parts: {name}"


def signatures_come_back_where_they_came(request: Request) -> Iterator[str]:
    """A signature is one that was given, in its own part (S4: 354 returned), or stands for one on a call (11)."""
    for part in request.parts:
        signature = part.text("thoughtSignature")
        if not signature or (signature in DUMMIES and "functionCall" in part.data):
            continue
        try:
            base64.b64decode(signature, validate=True)
        except binascii.Error:
            yield f"{part.where}.thoughtSignature: Base64 decoding failed"
        served = request.memory.parts.get(signature)
        if served is None:
            yield f"{part.where}: Corrupted thought signature."
        elif not _is_same(part.data, served):
            yield f"{part.where}: served {served}, came back {part.data}"


def thoughts_bear_no_signature(request: Request) -> Iterator[str]:
    """A thought has none (S4: 0 of 27)."""
    for part in request.parts:
        if part.data.get("thought") and "thoughtSignature" in part.data:
            yield f"{part.where}: a thought with a signature"


def _is_same(part: Json, served: Json) -> bool:
    call, called = as_object(part.get("functionCall")), as_object(served.get("functionCall"))
    if called:  # where none was given, the id is the client's
        return call.get("name") == called.get("name") and call.get("args") == called.get("args", {})
    return {key: value for key, value in part.items() if key != "thoughtSignature"} == served


# -- tools and settings ------------------------------------------------------------------------------------------------


def functions_are_declared_together(request: Request) -> Iterator[str]:
    """One element has all functions, and a list of tools has some (S2: 455)."""
    tools = items_of(request.body.get("tools"), "tools")
    if len([tool for tool in tools if "functionDeclarations" in tool.data]) > 1 or request.body.get("tools") == []:
        yield "tools: function declarations are not in one element"


def a_function_has_one_schema(request: Request) -> Iterator[str]:
    """`parametersJsonSchema`, and not `parameters` beside it (S2); `$schema` is not among its words (R)."""
    for tool in request.tools:
        if "parameters" in tool.data or "$schema" in tool.under("parametersJsonSchema").data:
            yield f"{tool.where}: parameters, or $schema"


def a_mode_has_its_functions(request: Request) -> Iterator[str]:
    """A mode needs declarations, and allowed names are declared (S2, R)."""
    calling = as_object(as_object(request.body.get("toolConfig")).get("functionCallingConfig"))
    if calling and not request.tools:
        yield "toolConfig: Function calling config is set without function_declarations."
    if undeclared := {*map(as_text, as_list(calling.get("allowedFunctionNames")))} - {
        tool.text("name") for tool in request.tools
    }:
        yield f"toolConfig: allowed functions {sorted(undeclared)} are not declared"


def file_searches_have_a_store(request: Request) -> Iterator[str]:
    """A search of files names where they are (G file-search)."""
    for tool in items_of(request.body.get("tools"), "tools"):
        if "fileSearch" in tool.data and not as_list(tool.under("fileSearch").data.get("fileSearchStoreNames")):
            yield f"{tool.where}: fileSearchStoreNames is empty"


def hosted_tools_stand_beside_functions_with_a_flag(request: Request) -> Iterator[str]:
    """On the Developer API, 3.x wants the flag (S5: 7 taken); 2.5 does not combine them (R)."""
    hosted = [tool for tool in items_of(request.body.get("tools"), "tools") if "functionDeclarations" not in tool.data]
    flag = as_object(request.body.get("toolConfig")).get("includeServerSideToolInvocations")
    if hosted and request.tools and not (flag and request.is_late):
        yield "tools: Please enable tool_config.include_server_side_tool_invocations to use Built-in tools"


def thinking_fits_the_model(request: Request) -> Iterator[str]:
    """A level from 3.x on, a budget before, never both, and 2.5-pro is never off (S2, R)."""
    config = as_object(request.config.get("thinkingConfig"))
    if "thinkingLevel" in config and "thinkingBudget" in config:
        yield "thinkingConfig: You can only set only one of thinking budget and thinking level"
    if "thinkingLevel" in config and not request.is_late:
        yield "thinkingConfig: Thinking level is not supported for this model."
    if config.get("thinkingBudget") == 0 and request.model.startswith("gemini-2.5-pro"):
        yield "thinkingConfig: Budget 0 is invalid. This model only works in thinking mode."
    if config.get("thinkingLevel") not in (None, "MINIMAL", "LOW", "MEDIUM", "HIGH"):
        yield f"thinkingConfig: {config['thinkingLevel']!r} is not known to be taken"


def settings_are_in_range(request: Request) -> Iterator[str]:
    """Temperature 0 to 2 (S2: one 400), at most 5 stop sequences (R), a schema with its mime type (S2)."""
    if not 0 <= (as_number(request.config.get("temperature")) or 0) <= 2:
        yield "generationConfig.temperature: must be between 0 and 2"
    if len(as_list(request.config.get("stopSequences"))) > 5:
        yield "generationConfig.stopSequences: at most 5"
    if {"responseSchema", "responseJsonSchema"} & request.config.keys() and "responseMimeType" not in request.config:
        yield "generationConfig: a response schema needs responseMimeType"
    if "responseMimeType" in request.config and request.tools and not request.is_late:
        yield "Function calling with a response mime type: 'application/json' is unsupported"


def files_are_of_a_kind_that_is_taken(request: Request) -> Iterator[str]:
    """Inline files are pictures, PDF, texts, sounds and videos (S2), a picture of at most 7 MB (V)."""
    for part in request.parts:
        inline = as_object(part.data.get("inlineData"))
        kind = as_text(inline.get("mimeType"))
        if inline and not (kind.startswith(("audio/", "text/", "video/")) or kind in _FILES):
            yield f"{part.where}: Unsupported MIME type: {kind}"
        if kind.startswith("image/") and len(as_text(inline.get("data"))) * 3 // 4 > 7_000_000:
            yield f"{part.where}: Unable to process input image. Please retry or report"


RULES: tuple[Rule[Request], ...] = (*SHARED_RULES, *_rules_of(globals(), besides=SHARED_RULES))
