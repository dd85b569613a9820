"""Everything that can go wrong between a model and its provider: one table, for every adapter.

The certificates beside this file were made by hand and are valid until 2126; their keys guard nothing.
"""

import email.utils
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

from journeyman.errors import ProviderErrorKind
from journeyman.models.transport import EVENT_LIMIT_BYTES
from journeyman.types import Usage
from tests.contracts.fault_wires import JSON, Wire
from tests.contracts.makers import KEY
from tests.models.raw_server import Answer, closing_after, hanging_after, http, resetting_after

CERTIFICATES = Path(__file__).parent / "certificates"


def nothing(_: Wire) -> Usage | None:
    """Return what is used where there was no request, or one that is not billed."""
    return Usage()


def unknown(_: Wire) -> Usage | None:
    """Return what is used where the answer did not tell, and may have been billed."""
    return None


Place: TypeAlias = Literal["here", "self_signed", "elsewhere", "nowhere"]
"""Who answers: a server in the clear, one with a certificate that nobody vouches for, one with another's certificate,
or nobody."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One row: what the provider does, and how it must be told."""

    name: str
    answer: Callable[[Wire], Answer]
    kind: ProviderErrorKind
    used: Callable[[Wire], Usage | None]
    """What is known to be used; None if nothing is known."""
    _: KW_ONLY
    status: int | None = None
    labelled: bool = False
    """The provider gives its own label for the error."""
    wait_s: float | None = None
    """How long the provider asks to wait, give or take a second or two where it is a date."""
    silence_s: float = 0.0
    """How long each request hangs until it is given up, by the default time-outs."""
    place: Place = "here"
    is_within: bool = False
    """An answer began; if not, its form does not matter."""


def context(place: Place) -> ssl.SSLContext | None:
    """Return what a server at this place shows to its clients."""
    if place not in ("self_signed", "elsewhere"):
        return None
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown.load_cert_chain(CERTIFICATES / f"{place}.pem")
    return shown


def _always(answer: Answer) -> Callable[[Wire], Answer]:
    return lambda wire: answer


_KINDS: Mapping[int, ProviderErrorKind] = {
    400: "bad_request",
    401: "auth",
    403: "auth",
    404: "not_found",
    408: "timeout",
    413: "context_overflow",
    429: "rate_limited",
    500: "overloaded",
    529: "overloaded",
}


def _refusal(status: int, name: str = "", *, headers: Mapping[str, str] | None = None, wait_s: float | None = None):
    def answer(wire: Wire) -> Answer:
        body = wire.refusal(status, f"No, not with {KEY}")
        return http(body, status=status, content_type=JSON, headers={"x-request-id": "req_7", **(headers or {})})

    return Fault(f"{status}{name}", answer, _KINDS[status], nothing, status=status, labelled=True, wait_s=wait_s)


def _in_half_a_minute(wire: Wire) -> Answer:
    moment = email.utils.formatdate(time.time() + 30, usegmt=True)
    return http(wire.refusal(429, "No"), status=429, content_type=JSON, headers={"Retry-After": moment})


_WAITS: tuple[tuple[int, str, str, str, float | None], ...] = (
    (429, "a wait", "Retry-After", "7", 7.0),
    (429, "a wait of no time", "retry-after", "0", 0.0),
    (429, "a wait in milliseconds", "retry-after-ms", "1500", 1.5),
    (429, "a negative wait", "retry-after", "-3", 0.0),
    (429, "a wait that is none", "retry-after", "soon", None),
    (429, "an endless wait", "retry-after", "inf", None),
    (429, "a wait of an hour", "retry-after", "3600", 3600.0),
    (429, "a date in the past", "retry-after", "Thu, 01 Jan 2015 00:00:00 GMT", 0.0),
    (500, "a wait", "retry-after", "3", 3.0),
    (529, "a wait", "retry-after", "4", 4.0),
)


def _refusals() -> Iterator[Fault]:
    for status in _KINDS:
        yield _refusal(status)
    for status, name, header, wait, wait_s in _WAITS:
        yield _refusal(status, f" with {name}", headers={header: wait}, wait_s=wait_s)
    yield Fault("429 with a date", _in_half_a_minute, "rate_limited", nothing, status=429, labelled=True, wait_s=30.0)


_PAGE = f"<html><head><title>Bad gateway</title></head><body>{KEY}</body></html>".encode()


def _bare_refusals() -> Iterator[Fault]:
    """Yield refusals that are not in the provider's form."""
    bodies: dict[str, tuple[int, ProviderErrorKind, Answer]] = {
        "a page": (502, "overloaded", http(_PAGE, status=502, content_type="text/html")),
        "an empty body": (503, "overloaded", http(b"", status=503, content_type="")),
        "garbage": (500, "overloaded", http(b"\xff\x00{" * 50_000, status=500, content_type=JSON)),
        "a body that breaks off": (500, "overloaded", closing_after(http(_PAGE, status=500)[:-20])),
        "a list": (400, "bad_request", http(b"[1, null]", status=400, content_type=JSON)),
        "a redirect": (307, "unknown", http(status=307, headers={"Location": "/elsewhere"})),
    }
    for name, (status, kind, answer) in bodies.items():
        yield Fault(f"{status} with {name}", _always(answer), kind, nothing, status=status)


_IDLE_S = 120.0  # the default of `Timeouts.idle_s`


def _silences() -> Iterator[Fault]:
    within_headers = hanging_after(b"HTTP/1.1 200 OK\r\nContent-Ty")
    enormous = closing_after(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1_000_000 + b"\r\n\r\n")
    yield Fault("nobody there", _always(b""), "network", nothing, place="nowhere")
    yield Fault("own certificate", _always(b""), "bad_request", nothing, place="self_signed")
    yield Fault("another's certificate", _always(b""), "bad_request", nothing, place="elsewhere")
    yield Fault("closed at once", _always(closing_after(b"")), "network", unknown)
    yield Fault("reset at once", _always(resetting_after(b"")), "network", unknown)
    yield Fault("silence", _always(hanging_after(b"")), "timeout", unknown, silence_s=_IDLE_S)
    yield Fault("silence within the headers", _always(within_headers), "timeout", unknown, silence_s=_IDLE_S)
    yield Fault("another protocol", _always(closing_after(b"\x16\x03\x01 garbage\r\n\r\n")), "unknown", unknown)
    yield Fault("an enormous header", _always(enormous), "unknown", unknown)


def _cut(ending: Callable[[bytes], Answer], *, n_more: int = 0) -> Callable[[Wire], Answer]:
    """Return an answer of which only the beginning arrives, and some bytes more: within an event or a number."""

    def answer(wire: Wire) -> Answer:
        whole = http(wire.whole, content_type=wire.content_type)
        return ending(whole[: len(whole) - len(wire.rest) + n_more])

    return answer


def _with(middle: bytes) -> Callable[[Wire], Answer]:
    """Return an answer with something else in its middle."""

    def answer(wire: Wire) -> Answer:
        data = b"event: %b\ndata: %b\n\n" % (wire.event_name, middle) if wire.is_stream else middle
        return http(wire.begun + data + wire.rest, content_type=wire.content_type)

    return answer


def _overload(wire: Wire) -> Answer:
    return http(wire.begun + wire.overload if wire.is_stream else wire.overload, content_type=wire.content_type)


_broken = partial(Fault, kind="stream_cut", used=lambda wire: wire.seen, status=200, is_within=True)


def _within() -> Iterator[Fault]:
    for name, ending in (("closed", closing_after), ("reset", resetting_after)):
        yield _broken(f"{name} in the middle", _cut(ending))
        yield _broken(f"{name} within a piece", _cut(ending, n_more=10))
    yield _broken("ended as if all were well", lambda wire: http(wire.begun, content_type=wire.content_type))
    yield _broken("garbage", _with(b"\x00\x01{" + KEY.encode()))
    yield _broken("invalid UTF-8", _with(b'{"type": "\xff"}'))
    yield _broken("silence in the middle", _cut(hanging_after), kind="stream_idle", silence_s=_IDLE_S)
    yield _broken("an enormous line", _with(b"x" * (EVENT_LIMIT_BYTES + 1_000_000)), kind="unknown")
    yield _broken(
        "an overload reported within",
        _overload,
        kind="overloaded",
        used=lambda wire: wire.seen_with_overload or wire.seen,
        labelled=True,
    )


def _no_answers() -> Iterator[Fault]:
    """Yield what comes with the status of an answer and is none."""

    no_answer = partial(_broken, kind="unknown", used=unknown)
    yield no_answer("a page", _always(http(_PAGE, content_type="text/html; charset=utf-8")))
    yield no_answer("a page with the label of an answer", lambda wire: http(_PAGE, content_type=wire.content_type))
    yield no_answer("a document of something else", _always(http(b'["hello"]', content_type=JSON)))
    yield no_answer("a picture", _always(http(b"\x89PNG\xff\x00" * 300, content_type="image/png")))
    yield no_answer("nothing, and no content type", _always(http(b"", content_type="")))
    yield _broken("an empty body", lambda wire: http(b"", content_type=wire.content_type), used=unknown)


FAULTS = (*_refusals(), *_bare_refusals(), *_silences(), *_within(), *_no_answers())
