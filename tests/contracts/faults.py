"""Everything that can go wrong between a model and its provider: one table, for every adapter.

The certificates beside this file were made by hand and are valid until 2126; their keys guard nothing. Imports
`fault_wires`. Read `test_faults.py` next.
"""

from __future__ import annotations

import email.utils
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from journeyman.errors import ProviderErrorKind
from journeyman.models.transport import EVENT_LIMIT_BYTES
from journeyman.types import Usage
from tests.contracts.fault_wires import ECHO, JSON, Wire
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One row: what the provider does, and how it must be told."""

    name: str
    answer: Callable[[Wire], Answer]
    kind: ProviderErrorKind
    used: Callable[[Wire], Usage | None]
    """What is known to be used; None if nothing is known."""
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


# -- refusals ----------------------------------------------------------------------------------------------------------

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
        body = wire.refusal(status, f"No, not with {ECHO}")
        return http(body, status=status, content_type=JSON, headers={"x-request-id": "req_7", **(headers or {})})

    return Fault(
        name=f"{status}{name}",
        answer=answer,
        kind=_KINDS[status],
        used=nothing,
        status=status,
        labelled=True,
        wait_s=wait_s,
    )


def _in_half_a_minute(wire: Wire) -> Answer:
    moment = email.utils.formatdate(time.time() + 30, usegmt=True)
    return http(wire.refusal(429, "No"), status=429, content_type=JSON, headers={"Retry-After": moment})


def _refusals() -> Iterator[Fault]:
    for status in _KINDS:
        yield _refusal(status)
    yield _refusal(429, " with a wait", headers={"Retry-After": "7"}, wait_s=7.0)
    yield _refusal(429, " with a wait of no time", headers={"retry-after": "0"}, wait_s=0.0)
    yield _refusal(429, " with a wait in milliseconds", headers={"retry-after-ms": "1500"}, wait_s=1.5)
    yield _refusal(429, " with a negative wait", headers={"retry-after": "-3"}, wait_s=0.0)
    yield _refusal(429, " with a wait that is none", headers={"retry-after": "soon"})
    yield _refusal(429, " with an endless wait", headers={"retry-after": "inf"})
    yield _refusal(429, " with a wait of an hour", headers={"retry-after": "3600"}, wait_s=3600.0)
    yield _refusal(
        429, " with a date in the past", headers={"retry-after": "Thu, 01 Jan 2015 00:00:00 GMT"}, wait_s=0.0
    )
    yield Fault(
        name="429 with a date",
        answer=_in_half_a_minute,
        kind="rate_limited",
        used=nothing,
        status=429,
        labelled=True,
        wait_s=30.0,
    )
    yield _refusal(500, " with a wait", headers={"retry-after": "3"}, wait_s=3.0)
    yield _refusal(529, " with a wait", headers={"retry-after": "4"}, wait_s=4.0)


_PAGE = f"<html><head><title>Bad gateway</title></head><body>{ECHO}</body></html>".encode()


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
        yield Fault(name=f"{status} with {name}", answer=_always(answer), kind=kind, used=nothing, status=status)


# -- no answer ---------------------------------------------------------------------------------------------------------


_IDLE_S = 120.0  # the default of `Timeouts.idle_s`


def _silences() -> Iterator[Fault]:
    yield Fault(name="nobody there", answer=_always(b""), kind="network", used=nothing, place="nowhere")
    yield Fault(name="own certificate", answer=_always(b""), kind="network", used=nothing, place="self_signed")
    yield Fault(name="another's certificate", answer=_always(b""), kind="network", used=nothing, place="elsewhere")
    yield Fault(name="closed at once", answer=_always(closing_after(b"")), kind="network", used=unknown)
    yield Fault(name="reset at once", answer=_always(resetting_after(b"")), kind="network", used=unknown)
    yield Fault(name="silence", answer=_always(hanging_after(b"")), kind="timeout", used=unknown, silence_s=_IDLE_S)
    yield Fault(
        name="silence within the headers",
        answer=_always(hanging_after(b"HTTP/1.1 200 OK\r\nContent-Ty")),
        kind="timeout",
        used=unknown,
        silence_s=_IDLE_S,
    )
    yield Fault(
        name="another protocol",
        answer=_always(closing_after(b"\x16\x03\x01 garbage\r\n\r\n")),
        kind="unknown",
        used=unknown,
    )
    yield Fault(
        name="an enormous header",
        answer=_always(closing_after(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1_000_000 + b"\r\n\r\n")),
        kind="unknown",
        used=unknown,
    )


# -- within the answer -------------------------------------------------------------------------------------------------


def _cut(ending: Callable[[bytes], Answer], *, n_more: int = 0) -> Callable[[Wire], Answer]:
    """Return an answer of which only the beginning arrives, and some bytes more: within an event or a number."""

    def answer(wire: Wire) -> Answer:
        whole = http(wire.whole, content_type=wire.content_type)
        return ending(whole[: len(whole) - len(wire.rest) + n_more])

    return answer


def _ended(wire: Wire) -> Answer:
    return http(wire.begun, content_type=wire.content_type)


def _with(middle: bytes) -> Callable[[Wire], Answer]:
    """Return an answer with something else in its middle."""

    def answer(wire: Wire) -> Answer:
        data = b"event: %b\ndata: %b\n\n" % (wire.event_name, middle) if wire.is_stream else middle
        return http(wire.begun + data + wire.rest, content_type=wire.content_type)

    return answer


def _overload(wire: Wire) -> Answer:
    return http(wire.begun + wire.overload if wire.is_stream else wire.overload, content_type=wire.content_type)


def _within() -> Iterator[Fault]:
    for name, ending in (("closed", closing_after), ("reset", resetting_after)):
        yield _broken(f"{name} in the middle", _cut(ending))
        yield _broken(f"{name} within a piece", _cut(ending, n_more=10))
    yield _broken("ended as if all were well", _ended)
    yield _broken("garbage", _with(b"\x00\x01{" + ECHO.encode()))
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


def _broken(
    name: str,
    answer: Callable[[Wire], Answer],
    *,
    kind: ProviderErrorKind = "stream_cut",
    used: Callable[[Wire], Usage | None] = lambda wire: wire.seen,
    silence_s: float = 0.0,
    labelled: bool = False,
) -> Fault:
    return Fault(
        name=name,
        answer=answer,
        kind=kind,
        used=used,
        status=200,
        is_within=True,
        silence_s=silence_s,
        labelled=labelled,
    )


def _no_answers() -> Iterator[Fault]:
    """Yield what comes with the status of an answer and is none."""

    def no_answer(name: str, answer: Callable[[Wire], Answer]) -> Fault:
        return Fault(name=name, answer=answer, kind="unknown", used=unknown, status=200, is_within=True)

    yield no_answer("a page", _always(http(_PAGE, content_type="text/html; charset=utf-8")))
    yield no_answer("a picture", _always(http(b"\x89PNG\xff\x00" * 300, content_type="image/png")))
    yield no_answer("the wrong content type", lambda wire: http(wire.whole, content_type="text/plain"))
    yield no_answer("no content type", lambda wire: http(wire.whole, content_type=""))
    yield no_answer("nothing, and no content type", _always(http(b"", content_type="")))
    yield Fault(
        name="an empty body",
        answer=lambda wire: http(b"", content_type=wire.content_type),
        kind="stream_cut",
        used=unknown,
        status=200,
        is_within=True,
    )


FAULTS = (*_refusals(), *_bare_refusals(), *_silences(), *_within(), *_no_answers())
