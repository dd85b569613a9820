"""Guards the viewer: checks every request before it is answered, and sets the headers of every answer."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from secrets import token_urlsafe
from typing import Final
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Exchange

from journeyman.errors import Problem, count
from journeyman.serve.http_guard import check_encoding, check_page, check_type, is_loopback, is_wildcard
from journeyman.view.documents import RefusalDocument

MOST_BYTES: Final = 1_000_000
"""How long the body of a request may be."""
_HEADERS: Final = {
    "content-security-policy": "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'; object-src 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}


_SHORTEST_TOKEN: Final = 16


def access_problems(address: str, token: str | None, names: Sequence[str]) -> list[Problem]:
    """Return why nothing is served at an address: others could reach it, and would not be kept out."""
    problems: list[Problem] = []
    if token is not None and len(token) < _SHORTEST_TOKEN:
        text = f"The token has {count(len(token), 'character')}, fewer than {_SHORTEST_TOKEN}."
        hint = "Take a random one: python -c 'import secrets; print(secrets.token_urlsafe())'"
        problems.append(Problem("WEAK_TOKEN", text, hint))
    if not is_loopback(address) and token is None:
        text = f"Others can reach {address or 'all addresses'}, and could read and steer the runs."
        problems.append(Problem("NO_TOKEN", text, "Set JOURNEYMAN_VIEW_TOKEN, or stay on 127.0.0.1."))
    if is_wildcard(address) and not names:
        text = f"{address or 'The empty address'} is every address of this machine, under names that are not known."
        problems.append(Problem("NO_HOST_NAME", text, "Listen at one of them."))
    return problems


def refusal(status: int, error: str, hint: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer that says what is wrong, and what to do."""
    return JSONResponse(RefusalDocument(error=error, hint=hint), status, headers)


def asked_path(exchange: Exchange) -> str:
    """Return the path of a request below this application, wherever that is mounted."""
    path, mounted = exchange["path"], exchange.get("root_path", "")
    return path.removeprefix(mounted) if path.startswith(f"{mounted}/") else path


@dataclass(frozen=True, slots=True)
class Doorkeeper:
    """Lets through what may be asked."""

    app: ASGIApp
    token: str | None
    """What whoever asks has to bring; None: nothing."""
    hosts: Sequence[str]
    """The names under which it may be asked, without ports."""
    session: str = field(default_factory=token_urlsafe, repr=False)
    """The value of the cookie of browsers that have brought the token. It is not the token, and ends with the process:
    browsers send a cookie to whatever listens at another port of the machine, too."""

    async def __call__(self, exchange: Exchange, receive: Receive, send: Send) -> None:
        if exchange["type"] != "http":
            await self.app(exchange, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refused = self._refuse(exchange)
        if refused is not None:
            await refused(exchange, receive, send_with_headers)
            return
        await self.app(exchange, _limit_body(receive), send_with_headers)

    def _refuse(self, exchange: Exchange) -> Response | None:
        """Return the answer to what must not be asked; None to what may."""
        headers = Headers(scope=exchange)
        is_page = exchange["method"] == "GET" and not asked_path(exchange).startswith("/api/")
        unwelcome = check_page(exchange, self.hosts, may_be_opened=is_page)
        if unwelcome is None and exchange["method"] == "POST":
            unwelcome = check_type(headers) or check_encoding(headers)
        if unwelcome is not None:
            hint = f"Open it as {self.hosts[0]}." if unwelcome.status in (403, 421) else unwelcome.hint
            return refusal(unwelcome.status, unwelcome.message, hint, unwelcome.headers)
        if int(headers.get("content-length") or 0) > MOST_BYTES:
            return refusal(413, f"The body is longer than {MOST_BYTES:,} bytes.", "Send less.")
        return None if self.token is None else self._ask_for_token(exchange, headers, self.token)

    def _ask_for_token(self, exchange: Exchange, headers: Headers, token: str) -> Response | None:
        """Return the answer to whoever does not bring the token, or brings it in the address."""
        given = [value for name, value in _query(exchange) if name == "token"]
        if given and exchange["method"] == "GET":
            return self._sign_in(exchange, given[-1], token)
        if asked_path(exchange).startswith("/api/") and not self._is_known(exchange, headers, token):
            return refusal(401, "The token is missing or wrong.", "Open the address that journeyman view has printed.")
        return None

    def _sign_in(self, exchange: Exchange, given: str, token: str) -> Response:
        """Take the token out of the address, into a cookie."""
        if not hmac.compare_digest(given.encode(), token.encode()):
            return refusal(401, "The token is wrong.", "Open the address that journeyman view has printed.")
        rest = urlencode([(name, value) for name, value in _query(exchange) if name != "token"])
        path = "/" + exchange["path"].lstrip("/")  # two slashes would be another host
        answer = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
        mounted = exchange.get("root_path", "") or "/"
        answer.set_cookie(cookie_of(exchange), self.session, httponly=True, samesite="strict", path=mounted)
        return answer

    def _is_known(self, exchange: Exchange, headers: Headers, token: str) -> bool:
        """Tell whether a request brings the token, or is of a browser that has brought it."""
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(bearer.strip().encode(), token.encode()):
            return True
        with suppress(CookieError):
            given = SimpleCookie(headers.get("cookie", "")).get(cookie_of(exchange))
            return given is not None and hmac.compare_digest(given.value.encode(), self.session.encode())
        return False


def cookie_of(exchange: Exchange) -> str:
    """Return the name of the cookie. Viewers at other ports of a machine have others, since browsers send all of them
    to each."""
    port = Headers(scope=exchange).get("host", "").rpartition(":")[2]
    return f"journeyman-view-{port}" if port.isdecimal() else "journeyman-view"


def _query(exchange: Exchange) -> list[tuple[str, str]]:
    return parse_qsl(exchange["query_string"].decode("latin-1"), keep_blank_values=True)


def _limit_body(receive: Receive) -> Receive:
    """Return a `receive` that raises `TooLong` beyond the limit, whatever length the body was said to have."""
    n_bytes = 0

    async def receive_limited() -> Message:
        nonlocal n_bytes
        message = await receive()
        n_bytes += len(message.get("body", b""))
        if n_bytes > MOST_BYTES:
            raise TooLong
        return message

    return receive_limited


class TooLong(Exception):
    """The body of a request is longer than it may be."""
