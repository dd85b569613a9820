"""Stand-ins of the examples: small programs in the place of a model, of which the conversation alone decides."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from journeyman.model import ModelSettings, Prefix, Request, Response
from journeyman.types import Block, Message, ToolUse


def asked(messages: Sequence[Message]) -> Request:
    """Return the request that such a conversation becomes."""
    return Request(prefix=Prefix(), messages=messages, settings=ModelSettings())


def assert_keeps_no_state(answer: Callable[[Request], object], messages: Sequence[Message]) -> None:
    """Assert that each answer in the conversation follows from the messages before it."""
    answers = [number for number, message in enumerate(messages) if message.role == "assistant"]
    assert answers
    for number in answers:
        said = answer(asked(messages[:number]))
        assert isinstance(said, Response)
        assert without_ids(said.content) == without_ids(messages[number].content)


def without_ids(blocks: Sequence[Block]) -> list[Block]:
    return [replace(block, id="") if isinstance(block, ToolUse) else block for block in blocks]
