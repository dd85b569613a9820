"""Pictures and documents as OpenAI-style APIs take them, and the texts that stand for those they do not take.

Imports `types`. Read an encoder next.
"""

from __future__ import annotations

from base64 import b64decode
from pathlib import PurePosixPath

from journeyman.types import Base64, Document, Image, Source


def url_of(source: Source) -> str:
    """Return the address of what is elsewhere, or a `data:` URL that holds it."""
    return f"data:{source.media_type};base64,{source.data}" if isinstance(source, Base64) else source.url


def plain_text(document: Document) -> str | None:
    """Return the text of a document that is one, after its title; None for any other."""
    source = document.source
    if not isinstance(source, Base64) or not source.media_type.startswith("text/"):
        return None
    text = b64decode(source.data).decode("utf-8", "replace")
    return f"{document.title}:\n{text}" if document.title else text


def file_name(document: Document) -> str:
    """Return a name that says what kind of file it is."""
    name = document.title or "document"
    return name if PurePosixPath(name).suffix else f"{name}.pdf"


def missing(block: Image | Document) -> str:
    """Return the text that stands for a block that cannot be sent."""
    source = block.source
    kind = source.media_type if isinstance(source, Base64) else source.url
    if isinstance(block, Image):
        return f"[An image ({kind}) that cannot be sent to this model is left out.]"
    named = f" {block.title!r}" if block.title else ""
    return f"[A document{named} ({kind}) that cannot be sent to this model is left out.]"
