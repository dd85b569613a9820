"""Rules about the input of Responses alone: what an item may hold, and how reasoning belongs to it.

Each rule yields one text per fault and names its source: P is developers.openai.com/api/docs, # an issue or pull
request.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from tests.support.messages_json import Json, as_text
from tests.support.openai_request import NAME, Request, is_object_text
from tests.support.strict_request import Item, Rule, rules_of

_PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs"}
_COMPARED = ("summary", "content", "encrypted_content", "call_id", "name", "arguments")


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
        if places and not any(_is_echo(item, served.items[place]) for served, place in places):
            served, place = places[-1]
            yield f"{item.where}: served {served.items[place]}, came back {item.data}"


def _stands_after(before: Item, served: tuple[Json, ...], place: int) -> bool:
    led = served[place - 1] if place else {}
    if led.get("type") != "reasoning":
        return True
    return before.type == "reasoning" and before.text("id") in ("", led.get("id"))


def _is_echo(item: Item, served: Json) -> bool:
    for key in _COMPARED:
        if key == "arguments" and not is_object_text(served.get(key)):
            continue
        if key == "name" and not NAME.match(as_text(served.get(key))):
            continue
        if (served.get(key) or None) != (item.data.get(key) or None):
            return False
    return item.text("id") in ("", served.get("id"))


RESPONSES_RULES: tuple[Rule[Request], ...] = rules_of(globals())
