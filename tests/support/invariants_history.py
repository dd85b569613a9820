"""What must hold of a run's history, by the strictest rule that any provider has. Written anew, without `history.py`.

Each rule yields what is wrong, in words.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial

import orjson

from journeyman import Message, ModelSettings, Text, ToolResult, dump_messages, load_messages
from journeyman.events import ModelResponded
from journeyman.history import History
from journeyman.loop.prepare import closing_of
from journeyman.model import Prefix, Request, ToolSpec
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.types import Block, Document, Image, Opaque, RedactedThinking, Thinking, ToolUse
from tests.support.messages_rules import judge
from tests.support.run_record import AnyResult, Reply, RunRecord

_ANY_TOOL = (ToolSpec(name="any", description="A model without tools calls none.", input_schema={"type": "object"}),)
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_USERS = (Text, Image, Document, ToolResult)
_MODELS = (Text, Thinking, RedactedThinking, ToolUse, Opaque)


def history_faults(messages: Sequence[Message]) -> Iterator[str]:
    """Yield why this conversation could not be sent, or would be another one after it was stored."""
    for number, message in enumerate(messages):
        before = messages[number - 1] if number else None
        after = messages[number + 1] if number + 1 < len(messages) else None
        for fault in (*_place_faults(message, before), *_content_faults(message), *_pairing_faults(message, after)):
            yield f"message {number}: {fault}"
    yield from _id_faults(messages)
    if load_messages(dump_messages(messages)) != list(messages):
        yield "it is another history after it was stored"
    if History(messages).export() != tuple(messages):
        yield f"it is mended when it is loaded: {History(messages).export()}"


def wire_faults(record: RunRecord, messages: Sequence[Message]) -> Iterator[str]:
    """Yield what the strict judge says of the history as the Anthropic adapter sends it: as it is, and gone on from."""
    prefix = Prefix(tools=record.agent.plan.specs or _ANY_TOOL)
    going_on = History(messages)
    going_on.say(Text("Go on."))
    going_on.commit()
    for sent in (tuple(messages), going_on.export()):
        if sent:
            request = Request(prefix=prefix, messages=sent, settings=ModelSettings(max_tokens=1_000))
            yield from _judged(AnthropicModel("claude-sonnet-4-6", api_key="key").body(request))


@lru_cache(maxsize=1_000)
def _judged(body: bytes) -> tuple[str, ...]:
    if not _is_object(body):
        return (f"the body is no JSON: {body!r}",)
    headers = {"x-api-key": "key", "anthropic-version": "2023-06-01", "content-type": "application/json"}
    return tuple(judge(orjson.loads(body), headers))


def origin_faults(record: RunRecord, result: AnyResult) -> Iterator[str]:
    """Yield where the history is not: what was given, and then what the model said, word for word."""
    given, forgetful = (History(record.given, closing=partial(closing_of, record.agent)) for _ in range(2))
    forgetful.forget_server_calls()  # as a prompt does that follows
    n_given = next((n for each in (given, forgetful) if (n := _begins(result.history, each)) is not None), None)
    if n_given is None:
        yield "it does not begin with what was given"
        return
    said = [message.content for message in result.history[n_given:] if message.role == "assistant"]
    if record.replies is not None:
        expected = [content for reply in _heard(record) if (content := _as_stored(reply.content))]
        if [tuple(map(_as_written, content)) for content in said] != expected:
            yield f"the model said {expected}, and the history has {said}"


def _begins(messages: Sequence[Message], history: History) -> int | None:
    """Return how many messages are those of `history`, if it begins so; the user's last message may have grown."""
    given = history.export()
    kept = given[:-1] if given and given[-1].role == "user" else given
    if tuple(messages[: len(kept)]) != kept:
        return None
    grown = messages[len(kept)].content if len(messages) > len(kept) else ()
    last = given[-1].content if len(kept) < len(given) else ()
    return len(kept) if grown[: len(last)] == last else None


def _heard(record: RunRecord) -> Iterator[Reply]:
    """Yield the replies that the loop took, in order."""
    by_name = {reply.name: reply for reply in record.replies or ()}
    for event in record.events:
        if isinstance(event, ModelResponded) and event.path == record.path:
            yield by_name[event.model]


def _as_stored(content: Sequence[Block]) -> tuple[Block, ...]:
    """Return what the history keeps of an answer: nothing of one of blanks only, which no provider takes back."""
    if all(isinstance(block, Text) and not block.text.strip() for block in content):
        return ()
    return tuple(_as_written(block) for block in content if not (isinstance(block, Text) and not block.text))


def _as_written(block: Block) -> Block:
    """Return the block as the model wrote it: with its own id, and what it wrote instead of arguments."""
    if isinstance(block, Text):
        return replace(block, text=block.text.encode(errors="replace").decode())
    if isinstance(block, Opaque):
        return replace(block, json=orjson.dumps(orjson.loads(block.json), option=orjson.OPT_SORT_KEYS).decode())
    if not isinstance(block, ToolUse):
        return block
    wire_id = block.id if block.wire_id is None else block.wire_id
    written = block.input_json if block.malformed is None else block.malformed
    return ToolUse(wire_id, block.name, written)


def _place_faults(message: Message, before: Message | None) -> Iterator[str]:
    if before is None and message.role == "assistant":
        yield "the assistant speaks first"
    if message.role == "user" and before is not None and before.role == "user":
        yield "two messages of the user in a row"
    follows = before is not None and before.role == message.role == "assistant"
    if follows != message.continues:
        yield f"continues={message.continues} after {before and before.role}"


def _content_faults(message: Message) -> Iterator[str]:
    if not message.content:
        yield "it is empty"
    for block in message.content:
        belongs = isinstance(block, _USERS) if message.role == "user" else isinstance(block, _MODELS)
        if not belongs:
            yield f"the {message.role} has {block}"
        if isinstance(block, Text) and not (block.text.strip() if message.role == "user" else block.text):
            yield "it has an empty text"
        if isinstance(block, ToolUse) and not _is_object(block.input_json):
            yield f"arguments that are no object: {block.input_json!r}"
        if isinstance(block, ToolResult):
            yield from _result_faults(block)
    try:
        dump_messages([message])
    except ValueError as error:
        yield f"it cannot be encoded: {error}"


def _result_faults(result: ToolResult) -> Iterator[str]:
    parts = (Text(result.content),) if isinstance(result.content, str) else result.content
    if not parts or any(isinstance(part, Text) and not part.text.strip() for part in parts):
        yield f"the result of {result.tool_use_id} is blank"


def _is_object(text: str | bytes) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except ValueError:
        return False


def _pairing_faults(message: Message, after: Message | None) -> Iterator[str]:
    """Calls are answered in call order, each once, first thing in the next message, and nothing else is answered."""
    asked = [call.id for call in message.tool_uses]
    following = after.content if after is not None and after.role == "user" else ()
    answered = [block.tool_use_id for block in following if isinstance(block, ToolResult)]
    if message.role == "assistant" and answered != asked:
        yield f"it asks for {asked}, and the next message answers {answered}"
    kinds = [isinstance(block, ToolResult) for block in message.content]
    if kinds != sorted(kinds, reverse=True):
        yield "a result comes after other content"


def _id_faults(messages: Sequence[Message]) -> Iterator[str]:
    ids = [call.id for message in messages for call in message.tool_uses]
    if len(set(ids)) < len(ids):
        yield f"ids are repeated: {ids}"
    for id in ids:
        if not _ID.fullmatch(id):
            yield f"the id {id!r} is not sendable"
