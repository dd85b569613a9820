"""A recording as one page that opens without a network and without a server: the viewer, and in it what it shows.

Content is data: it stands in a block that no browser runs, and nothing runs but the viewer's own script.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import fields
from hashlib import sha256
from html import escape
from importlib.resources import files
from operator import attrgetter
from typing import Any, Final, TypedDict

from journeyman.record.packing import dumped
from journeyman.record.reading import RecordedRun, Recordings, RequestPart, StoredRequest


class UsageDocument(TypedDict):
    """The tokens and the cost of a run; what no response reported is 0, except for the cost."""

    requests: int
    input_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cost: float | None


class PieceDocument(TypedDict):
    """A part of a request, which other requests may share."""

    number: int
    size: int
    body: str | None
    """None: its content was not kept."""


_USED: Final = [*UsageDocument.__annotations__]
_RUN: Final = [each.name for each in fields(RecordedRun) if each.name != "usage"]
_REQUEST: Final = [each.name for each in fields(StoredRequest)]
_of_run, _of_request = attrgetter(*_RUN), attrgetter(*_REQUEST)


def run_document(run: RecordedRun) -> dict[str, Any]:
    """Return a run as the viewer reads it."""
    usage = {name: getattr(run.usage, name) or (None if name == "cost" else 0) for name in _USED}
    return {**dict(zip(_RUN, _of_run(run), strict=True)), "usage": usage}


def request_document(request: StoredRequest) -> dict[str, Any]:
    """Return a request as the viewer reads it, except its pieces."""
    return dict(zip(_REQUEST, _of_request(request), strict=True))


def piece_document(piece: RequestPart) -> PieceDocument:
    """Return a part of a request as the viewer reads it."""
    text = None if piece.body is None else piece.body.decode("utf-8", "replace")
    return {"number": piece.number, "size": len(piece.body or b""), "body": text}


def page(recordings: Recordings, run: RecordedRun) -> Iterator[str]:
    """Give the lines of the page of a recording."""
    static = files("journeyman") / "view" / "static"
    # It would end the block in which the script stands.
    script = (static / "app.js").read_text(encoding="utf-8").replace("</script", "<\\/script")
    style = (static / "index.css").read_text(encoding="utf-8")
    # Only these two, by their digests: whatever a recorded text holds, no browser runs it.
    policy = f"default-src 'none'; script-src {_named(script)}; style-src {_named(style)}"
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="content-security-policy" content="{policy}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="color-scheme" content="light dark">'
    yield f"<title>{escape(run.agent)} {escape(run.id)}</title>"
    yield f'<style>{style}</style></head><body><div id="app"></div>'
    yield '<script type="application/json" id="recording">'
    yield f'{{"run":{_data(run_document(run))},"events":['
    yield from _listed(_data(each.document()) for each in recordings.all_events(run))
    yield '],"requests":['
    pieces: dict[int, RequestPart] = {}

    def read_request(request: StoredRequest) -> str:
        its = recordings.pieces(request)
        pieces.update({each.number: each for each in its})
        return _data({**request_document(request), "pieces": [each.number for each in its]})

    yield from _listed(map(read_request, recordings.all_requests(run)))
    yield '],"pieces":['
    yield from _listed(_data(piece_document(each)) for each in pieces.values())
    yield "]}</script>"
    yield f'<script type="module">{script}</script></body></html>'


def _named(text: str) -> str:
    """Return by what a policy knows a script or a style."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _data(value: object) -> str:
    """Return JSON that ends no block of a page."""
    return dumped(value).replace("<", "\\u003c")


def _listed(items: Iterator[str]) -> Iterator[str]:
    for n, item in enumerate(items):
        yield f",{item}" if n else item
