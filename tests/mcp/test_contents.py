"""What becomes of the contents of an answer: nothing in them makes a conversation that no provider takes."""

from base64 import b64encode

import pytest
from mcp import types

from journeyman import Document, Image, Text, ToolResult
from journeyman.mcp.contents import MAX_MEDIA, MAX_MEDIA_BYTES, to_tool_result
from journeyman.types import Base64

PNG = b"\x89PNG\r\n\x1a\n..."


def text(words: str) -> types.TextContent:
    return types.TextContent(type="text", text=words)


def picture(content: bytes, mime_type: str = "image/png") -> types.ImageContent:
    return types.ImageContent(type="image", data=b64encode(content).decode(), mime_type=mime_type)


def blob(uri: str, content: bytes, mime_type: str) -> types.EmbeddedResource:
    resource = types.BlobResourceContents(uri=uri, blob=b64encode(content).decode(), mime_type=mime_type)
    return types.EmbeddedResource(type="resource", resource=resource)


def shown(*blocks: types.ContentBlock, structured: dict[str, object] | None = None) -> object:
    return to_tool_result(types.CallToolResult(content=list(blocks), structured_content=structured)).content


def test_neighbouring_texts_are_one() -> None:
    assert shown(text("a"), text("b")) == "a\nb"
    parted = (Text("a"), Image(Base64.of(PNG, "image/png")), Text("b\nc"))
    assert (shown(text("a"), picture(PNG), text("b"), text("c")), shown()) == (parted, ())


def test_an_error_stays_one() -> None:
    assert to_tool_result(types.CallToolResult(content=[text("no")], is_error=True)) == ToolResult("no", is_error=True)


@pytest.mark.parametrize(
    ("content", "mime_type", "kind"),
    [
        (PNG, "image/png", "image/png"),
        (PNG, "image/jpeg", "image/png"),
        (b"\xff\xd8\xff...", "image/png", "image/jpeg"),
        (b"GIF89a...", "", "image/gif"),
        (b"RIFF....WEBP...", "image/webp", "image/webp"),
    ],
)
def test_a_picture_is_of_the_kind_that_it_is(content: bytes, mime_type: str, kind: str) -> None:
    assert shown(picture(content, mime_type)) == (Image(Base64.of(content, kind)),)


def test_what_no_provider_takes_is_named() -> None:
    assert shown(picture(b"<svg/>", "image/svg+xml")) == "[image/svg+xml, 6 bytes: not shown]"
    damaged = types.ImageContent(type="image", data="#!", mime_type="image/png")
    assert shown(damaged) == "[image/png, damaged: not shown]"
    sound = types.AudioContent(type="audio", data=b64encode(b"la").decode(), mime_type="audio/wav")
    assert shown(sound) == "[audio/wav, 2 bytes: not shown]"
    large = PNG + b"x" * MAX_MEDIA_BYTES
    assert shown(picture(large)) == f"[image/png, {len(large):,} bytes: not shown]"


def test_only_so_many_pictures_are_shown() -> None:
    blocks = shown(*[picture(PNG)] * (MAX_MEDIA + 2))
    more = Text("[2 more pictures or documents: not shown]")
    assert blocks == (*[Image(Base64.of(PNG, "image/png"))] * MAX_MEDIA, more)


def test_resources_are_shown_or_named() -> None:
    link = types.ResourceLink(type="resource_link", name="log", uri="file:///log.txt", description="All of it.")
    assert shown(link) == "[Resource log at file:///log.txt: All of it.]"
    note = types.TextResourceContents(uri="memo://note", text="milk")
    assert shown(types.EmbeddedResource(type="resource", resource=note)) == "[Resource memo://note]\nmilk"
    pdf = Document(Base64.of(b"%PDF-1.7", "application/pdf"), "memo://page")
    assert shown(blob("memo://page", b"%PDF-1.7", "application/pdf")) == (pdf,)
    assert shown(blob("memo://zip", b"PK", "application/zip")) == "[application/zip memo://zip, 2 bytes: not shown]"


@pytest.mark.parametrize(
    ("blocks", "structured", "expected"),
    [
        ([text('{\n  "a": 1\n}')], {"a": 1}, '{"a":1}'),
        ([text("[\n 1\n]")], {"result": [1]}, '{"result":[1]}'),
        ([text("1"), text("2")], {"result": [1, 2]}, '{"result":[1,2]}'),
        ([text("milk\n")], {"content": "milk\n"}, "milk\n"),
        ([text('{"a": 1}')], {"content": '{"a": 1}'}, '{"a": 1}'),
        ([text("a"), text("b")], {"result": ["a", "b"]}, "a\nb"),
        ([text("Two found.")], {"n": 2}, 'Two found.\n{"n":2}'),
        ([], {"n": 2}, '{"n":2}'),
        ([text("x")], {}, "x\n{}"),
    ],
)
def test_a_structured_result_is_shown_once(
    blocks: list[types.ContentBlock], structured: dict[str, object], expected: str
) -> None:
    assert shown(*blocks, structured=structured) == expected
