"""What users and tools say in the forms of other programs: a part of content, told by its `type`, as a block of ours.

One table for all forms: libraries mix the parts of several providers. What no block can hold raises a `ValueError` that
says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

from journeyman.content.media import decode_base64, kind_of
from journeyman.content.signatures import media_type_of
from journeyman.definition.narrowing import as_list, as_object, as_text
from journeyman.types import Audio, Base64, Document, Image, JsonObject, Text, UserContent

_CLASSES: Final = {"image": Image, "audio": Audio}
_USUAL: Final = {"image": "image/png", "document": "application/pdf", "audio": "audio/mpeg"}
"""By kind: the type of a file of which neither its sender nor its bytes say one."""
_Kind = Literal["image", "document", "audio"]


def read_part(part: object) -> UserContent:
    """Return a part of what a user or a tool said.

    Raises:
        ValueError: no block can hold it; says why.
    """
    if isinstance(part, str):
        return Text(part)
    fields = as_object(part)
    kind = as_text(fields.get("type") or fields.get("kind"))
    if kind not in _PARTS:
        raise ValueError(f"a part of type {kind!r}" if kind else f"a part that is {str(part)[:60]!r}")
    return _PARTS[kind](fields)


def file_of(base64: object, media_type: object, *, kind: _Kind | None = None, title: str | None = None) -> UserContent:
    """Return the block of a file that stands in Base64.

    Raises:
        ValueError: it is damaged, or of a kind that no block holds.
    """
    said = as_text(media_type).partition(";")[0].strip().lower()
    # Some libraries write the alphabet for URLs, or leave the padding out.
    text = as_text(base64).replace("-", "+").replace("_", "/")
    text += "=" * (-len(text) % 4)
    data = decode_base64(text)
    found = media_type_of(data) or said
    kind = kind or kind_of(said) or kind_of(found)
    if kind is None or not data:
        raise ValueError(f"a file of {len(data):,} bytes and of type {said!r}")
    source = Base64(text, found if kind_of(found) == kind else said or _USUAL[kind])
    return Document(source, title) if kind == "document" else _CLASSES[kind](source)


def file_at(url: object, kind: _Kind, title: str | None = None) -> UserContent:
    """Return the block of a file at an address, which may hold the file itself.

    Raises:
        ValueError: it is no such address, or what it holds is damaged.
    """
    address = as_text(url)
    if not address.startswith("data:"):
        return Document.from_url(address, title) if kind == "document" else _CLASSES[kind].from_url(address)
    head, comma, data = address.removeprefix("data:").partition(",")
    if not comma or not head.endswith(";base64"):
        raise ValueError("a data: URL that is not Base64")
    return file_of(data, head.removesuffix(";base64").partition(";")[0], kind=kind, title=title)


def _read_text(part: JsonObject) -> UserContent:
    return Text(as_text(part.get("text") or part.get("content")), cache_mark=part.get("cache_control") is not None)


def _read_image(part: JsonObject) -> UserContent:
    address = part.get("image_url") or part.get("url")
    if "source" in part:
        return _of_source(part, "image")
    if address is not None:
        return file_at(as_object(address).get("url") or address, "image")
    return _read_file(part, "image")


def _read_document(part: JsonObject) -> UserContent:
    return _of_source(part, "document") if "source" in part else _read_file(part, "document")


def _of_source(part: JsonObject, kind: Literal["image", "document"]) -> UserContent:
    source, title = as_object(part["source"]), as_text(part.get("title")) or None
    match source.get("type"):
        case "base64":
            return file_of(source.get("data"), source.get("media_type"), kind=kind, title=title)
        case "url":
            return file_at(source.get("url"), kind, title)
        case "text":
            return Document(Base64.of(as_text(source.get("data")).encode("utf-8", "replace"), "text/plain"), title)
        case other:
            raise ValueError(f"{kind} whose source is {other!r}: only its provider has it")


def _read_audio(part: JsonObject) -> UserContent:
    inner = as_object(part.get("input_audio"))
    if inner:
        form = as_text(inner.get("format"))
        return file_of(inner.get("data"), {"mp3": "audio/mpeg"}.get(form, f"audio/{form}"), kind="audio")
    return _read_file(part, "audio")


def _read_file(part: JsonObject, kind: _Kind | None = None) -> UserContent:
    """Return a file in one of the many ways to write one: in Base64, at an address, or by an id that cannot be read."""
    fields = {**part, **as_object(part.get("file"))}
    title = as_text(fields.get("filename") or fields.get("title")) or None
    media_type = fields.get("media_type") or fields.get("mime_type") or fields.get("mimeType")
    if isinstance(data := fields.get("file_data"), str) and data.startswith("data:"):
        return file_at(data, kind or "document", title)
    if data := data or fields.get("base64") or fields.get("data"):
        return file_of(data, media_type, kind=kind or (None if media_type else "document"), title=title)
    if url := fields.get("file_url") or fields.get("url"):
        return file_at(url, kind or kind_of(as_text(media_type)) or "document", title)
    raise ValueError(f"a file of which there is only {sorted(part.keys() - {'type', 'kind'})}")


_PARTS: Final[Mapping[str, Callable[[JsonObject], UserContent]]] = {
    **dict.fromkeys(("text", "input_text", "output_text", "text-content"), _read_text),
    **dict.fromkeys(("image", "image_url", "input_image", "image-url"), _read_image),
    **dict.fromkeys(("document", "document-url"), _read_document),
    **dict.fromkeys(("audio", "input_audio", "audio-url"), _read_audio),
    **dict.fromkeys(("file", "input_file", "binary"), _read_file),
}


def part_of_gemini(part: JsonObject) -> UserContent:
    """Return a part of Gemini's, which are told by their keys.

    Raises:
        ValueError: no block can hold it; says why.
    """
    inline, elsewhere = as_object(part.get("inlineData")), as_object(part.get("fileData"))
    if inline:
        return file_of(inline.get("data"), inline.get("mimeType"), title=as_text(inline.get("displayName")) or None)
    if elsewhere:
        return file_at(elsewhere.get("fileUri"), kind_of(as_text(elsewhere.get("mimeType"))) or "document")
    if isinstance(text := part.get("text"), str):
        return Text(text)
    raise ValueError(f"a part with {sorted(part)}")


def texts_of(content: object) -> str:
    """Return the words of a content that is a text, or a list of parts."""
    if isinstance(content, str):
        return content
    return "\n\n".join([as_text(each) or as_text(as_object(each).get("text")) for each in as_list(content)])
