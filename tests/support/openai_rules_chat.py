"""Rules about the messages of Chat Completions alone.

Each rule yields one text per fault and names its source: P is developers.openai.com/api/docs, # an issue or pull
request.
"""

from collections.abc import Iterator

from tests.support.messages_json import as_object, as_text
from tests.support.openai_request import NAME, Request, is_object_text
from tests.support.strict_request import Item, Rule, items_of, rules_of

MAX_MARKS = 4


def tool_calls_are_not_empty(request: Request) -> Iterator[str]:
    """A list of calls has at least one (openai/openai-node#1341)."""
    for message in request.items:
        if message.data.get("tool_calls") == []:
            yield f"{message.where}.tool_calls: empty array. Expected an array with minimum length 1"


def calls_come_back_unchanged(request: Request) -> Iterator[str]:
    """A call comes back as it was served, broken arguments aside (P guides/function-calling)."""
    for call in request.calls:
        served = request.memory.calls.get(call.text("id"))
        if served and not any(_is_echo(call.under("function"), as_object(each)) for each in served):
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


def _is_echo(function: Item, served: dict[str, object]) -> bool:
    arguments = as_text(served.get("arguments"))
    unchanged = function.text("arguments") == arguments or not is_object_text(arguments)
    return unchanged and (function.text("name") == served.get("name") or not NAME.match(as_text(served.get("name"))))


CHAT_RULES: tuple[Rule[Request], ...] = rules_of(globals())
