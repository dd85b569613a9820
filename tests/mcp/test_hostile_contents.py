"""Messages of MCP servers that would take long to read: they are told by counting, which takes no time."""

import asyncio
import json
from base64 import b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.types import CallToolResult, ImageContent, TextContent

from journeyman.mcp.contents import MAX_MEDIA_BYTES, message_fault, to_tool_result
from tests.support.stopwatch import STALL_S, longest_stall

BLOCKS = [{"type": "text", "text": ""}] * 200_000
ROWS = [{"name": f"row {number}", "value": number} for number in range(5_000)]
TOO_FINE = {
    "blocks": json.dumps({"result": {"content": BLOCKS}}),
    "numbers": json.dumps({"result": {"structuredContent": {"a": [1] * 1_000_000}}}),
    "empty objects": "[" + "{}" * 600_000 + "]",
    "empty lists": "[]" * 600_000,
    "quotes after backslashes": r'{"\\":"\\"}' * 60_000,
}
FINE = {
    "a table in a text": json.dumps({"result": {"content": [{"type": "text", "text": "1,2,3,4\n" * 500_000}]}}),
    "a long text": json.dumps({"result": {"content": [{"type": "text", "text": "a word, " * 50_000}]}}),
    "brackets in a text": json.dumps({"result": {"content": [{"type": "text", "text": "[{" * 100_000}]}}),
    "many lists": json.dumps({"result": {"structuredContent": {"a": [[[]]] * 20_000}}}),
    "a deep list": "[" * 190 + "]" * 190,
    "JSON in a text": json.dumps({"result": {"content": [{"type": "text", "text": json.dumps(ROWS)}]}}),
    "rows": json.dumps({"result": {"structuredContent": {"rows": ROWS}}}),
    "a picture": json.dumps({"result": {"content": [{"type": "image", "data": "A" * 6_000_000}]}}),
}


@pytest.mark.parametrize("message", TOO_FINE.values(), ids=TOO_FINE)
async def test_a_message_of_very_many_pieces_is_told_at_once(message: str) -> None:
    assert "more pieces than can be right" in await message_fault(message.encode())
    assert await longest_stall(lambda: message_fault(message.encode())) < STALL_S


@pytest.mark.parametrize("message", FINE.values(), ids=FINE)
async def test_a_large_message_that_means_no_harm_is_read(message: str) -> None:
    assert await message_fault(message.encode()) == ""
    assert await longest_stall(lambda: message_fault(message.encode())) < STALL_S


@pytest.mark.parametrize("before", ["", f'["{"x" * 400_000}", ', f"[{'[],' * 49_000}"], ids=["short", "text", "lists"])
async def test_a_message_that_is_nested_too_deeply_is_told(before: str) -> None:
    for opened in ("[" * 191, '{"a":' * 5_000, '[{"[": ' * 200):
        assert (
            await message_fault(f"{before}{opened}".encode()) == "it sent a message that is nested more than 190 deep"
        )


@settings(max_examples=25)
@given(st.lists(st.sampled_from(['"', "\\", ",", "[", "a", "\\\\"]), max_size=60), st.integers(0, 60))
def test_a_text_ends_where_it_ends_however_a_message_is_divided(pieces: list[str], n_before: int) -> None:
    """A message of one text is never too fine, wherever its escapes lie about the place where it is divided."""
    inside = json.dumps("".join(pieces))
    message = f"{' ' * (2**18 - n_before)}[{inside}, {json.dumps(',' * 600_000)}]"
    assert asyncio.run(message_fault(message.encode())) == ""
    assert asyncio.run(message_fault(f"{message}{'[' * 500_001}".encode()))


async def test_large_answers_are_shown_without_a_stall() -> None:
    data = b64encode(b"\x89PNG\r\n\x1a\n" + bytes(MAX_MEDIA_BYTES + 10)).decode()
    large = CallToolResult(content=[ImageContent(type="image", data=data, mime_type="image/png")] * 4)
    repeated = CallToolResult(
        content=[TextContent(type="text", text="[" + "1," * 2_000_000 + "1]")], structured_content={"a": 1}
    )
    assert "not shown" in str(to_tool_result(large).content)
    for answer in (large, repeated):
        assert await longest_stall(lambda answer=answer: to_tool_result(answer)) < STALL_S
