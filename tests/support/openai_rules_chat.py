"""Rules about the messages of Chat Completions: what one may hold, and how calls and results belong together.

Each rule yields one text per fault and names its source: P is developers.openai.com/api/docs, # an issue or pull
request.
"""

from collections import Counter
from collections.abc import Iterator

import orjson

from tests.support.messages_json import as_object, as_text
from tests.support.openai_request import Item, Request, items_of
from tests.support.openai_rules_settings import NAME

MAX_MARKS = 4

_ROLES = ("developer", "system", "user", "assistant", "tool")


def there_is_a_message(request: Request) -> Iterator[str]:
    """At least one message (CopilotKit/CopilotKit#529)."""
    if not request.messages:
        yield "messages: empty array. Expected an array with minimum length 1"


def roles_are_known(request: Request) -> Iterator[str]:
    """The role is developer, system, user, assistant or tool; function is deprecated (P api-reference/chat)."""
    for message in request.messages:
        if message.role not in _ROLES:
            yield f"{message.where}.role: {message.role!r} is not one of {', '.join(_ROLES)}"


def content_is_given(request: Request) -> Iterator[str]:
    """Content is there and not empty, but for an assistant that calls (run-llama/llama_index#17555)."""
    for message in request.messages:
        content = message.data.get("content")
        calls = message.role == "assistant" and (message.each("tool_calls") or message.text("refusal"))
        is_empty = content is None or content == []
        if is_empty and not calls:
            yield f"{message.where}.content: expected a string, got {'null' if content is None else 'an empty array'}"


def every_tool_call_is_answered(request: Request) -> Iterator[str]:
    """Tool messages for each call follow, before anything else (BerriAI/litellm#28995)."""
    for message, answers in _turns(request):
        answered = {answer.text("tool_call_id") for answer in answers}
        for call in message.each("tool_calls"):
            if call.text("id") not in answered:
                yield f"{call.where}: no tool message responds to tool_call_id {call.text('id')}"


def every_tool_message_has_its_call(request: Request) -> Iterator[str]:
    """A tool message responds to a call of the message before (FoundationAgents/OpenManus#744)."""
    with_call = {
        id(answer.data)
        for message, answers in _turns(request)
        for answer in answers
        if answer.text("tool_call_id") in {call.text("id") for call in message.each("tool_calls")}
    }
    for message in request.messages:
        if message.role == "tool" and id(message.data) not in with_call:
            yield f"{message.where}.role: must be a response to a preceding message with 'tool_calls'"


def a_call_is_answered_once(request: Request) -> Iterator[str]:
    """No two tool messages respond to one call (agno-agi/agno#5116)."""
    for message, answers in _turns(request):
        for id, times in Counter(answer.text("tool_call_id") for answer in answers).items():
            if times > 1:
                yield f"{message.where}: duplicate value for 'tool_call_id' of {id!r}"


def tool_calls_are_not_empty(request: Request) -> Iterator[str]:
    """A list of calls has at least one (openai/openai-node#1341)."""
    for message in request.messages:
        if message.data.get("tool_calls") == []:
            yield f"{message.where}.tool_calls: empty array. Expected an array with minimum length 1"


def call_ids_fit(request: Request) -> Iterator[str]:
    """Ids are unique in a message, not empty and not too long (can1357/oh-my-pi#2055, vercel/ai#5171)."""
    longest = request.service.longest_id
    for message in request.messages:
        ids = [call.text("id") for call in message.each("tool_calls")]
        for id in {id for id in ids if ids.count(id) > 1}:
            yield f"{message.where}.tool_calls: id {id!r} is repeated"
        for id in ids:
            if not id or (longest is not None and len(id) > longest):
                yield f"{message.where}.tool_calls: id {id!r} must have 1 to {longest or 'any'} characters"


def called_names_fit_the_pattern(request: Request) -> Iterator[str]:
    """The name in a call matches ^[a-zA-Z0-9_-]{1,64}$ (continuedev/continue#11645)."""
    for message in request.messages:
        for call in message.each("tool_calls"):
            name = call.under("function").text("name")
            if not NAME.match(name):
                yield f"{call.where}.function.name: {name!r} should match '^[a-zA-Z0-9_-]{{1,64}}$'"


def arguments_are_the_text_of_an_object(request: Request) -> Iterator[str]:
    """Arguments are text; vLLM and llama.cpp parse it (vllm-project/vllm#43995)."""
    for message in request.messages:
        for call in message.each("tool_calls"):
            if not is_object_text(call.under("function").data.get("arguments")):
                yield f"{call.where}.function.arguments: must be the text of a JSON object"


def calls_come_back_unchanged(request: Request) -> Iterator[str]:
    """A call comes back as it was served, broken arguments aside (P guides/function-calling)."""
    for message in request.messages:
        for call in message.each("tool_calls"):
            served = request.memory.calls.get(call.text("id"))
            if served and not any(_is_echo(call.under("function"), as_object(each)) for each in served):
                yield f"{call.where}: served {served[-1]}, came back {call.data.get('function')}"


def cache_marks_are_few_and_at_texts(request: Request) -> Iterator[str]:
    """At most four, at tools and texts, but the assistant's (pydantic/pydantic-ai#4604, earendil-works/pi#6941)."""
    parts = [part for message in request.messages for part in message.each("content")]
    marked = [item for item in (*parts, *items_of(request.body.get("tools"), "tools")) if "cache_control" in item.data]
    if len(marked) > MAX_MARKS:
        yield f"A maximum of {MAX_MARKS} blocks with cache_control may be provided. Found {len(marked)}"
    for message in request.messages:
        for part in message.each("content"):
            is_text = part.type == "text" and part.text("text") and message.role != "assistant"
            if "cache_control" in part.data and not is_text:
                yield f"{part.where}.cache_control: is for texts of the system, the user and tools"
        if "cache_control" in message.data:
            yield f"{message.where}.cache_control: belongs to a part of content"


def is_object_text(value: object) -> bool:
    """Tell whether a value is the text of a JSON object."""
    try:
        return isinstance(value, str) and isinstance(orjson.loads(value), dict)
    except orjson.JSONDecodeError:
        return False


def _is_echo(function: Item, served: dict[str, object]) -> bool:
    arguments = as_text(served.get("arguments"))
    unchanged = function.text("arguments") == arguments or not is_object_text(arguments)
    return unchanged and (function.text("name") == served.get("name") or not NAME.match(as_text(served.get("name"))))


def _turns(request: Request) -> Iterator[tuple[Item, list[Item]]]:
    """Yield every message that is no result, with the tool messages that follow at once."""
    owner, answers = Item("messages", {}), list[Item]()
    for message in request.messages:
        if message.role == "tool":
            answers.append(message)
        else:
            yield owner, answers
            owner, answers = message, []
    yield owner, answers


CHAT_RULES = (
    there_is_a_message,
    roles_are_known,
    content_is_given,
    every_tool_call_is_answered,
    every_tool_message_has_its_call,
    a_call_is_answered_once,
    tool_calls_are_not_empty,
    call_ids_fit,
    called_names_fit_the_pattern,
    arguments_are_the_text_of_an_object,
    calls_come_back_unchanged,
    cache_marks_are_few_and_at_texts,
)
