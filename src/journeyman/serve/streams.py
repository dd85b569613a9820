"""Events sent to one client as they happen: server-sent events, resumable, and cut off when nobody reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Generic, Protocol

import orjson
from starlette.types import Receive, Scope, Send
from typing_extensions import TypeVar

from journeyman.serve.hosting import Hosting
from journeyman.serve.http_guard import SLOW_S
from journeyman.serve.live import Followed, Numbered, until_gone
from journeyman.serve.refusals import RETRY_S, Refusal

HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
QUIET_S: Final = 15.0
"""After so many seconds without an event a comment is sent, so that no proxy closes the connection."""
_TOGETHER_S: Final = 0.02
"""Questions that are asked within so long are told together."""


E = TypeVar("E", bound=Numbered)
E_contra = TypeVar("E_contra", bound=Numbered, contravariant=True)


class Wording(Protocol[E_contra]):
    """A port that writes the events of one run as bytes for one client."""

    @property
    def is_done(self) -> bool:
        """True when nothing more is to be told."""
        ...

    @property
    def may_pause(self) -> bool:
        """True when it may be told that an answer is wanted, as soon as nothing else happens."""
        ...

    def say(self, entries: Sequence[E_contra]) -> bytes:
        """Return the bytes that tell the client of these events."""
        ...

    def pause(self) -> bytes:
        """Return the bytes that end the stream where an answer is wanted."""
        ...


class Plain:
    """Our own events, word for word: what is sent is made once for all clients."""

    may_pause = False

    def __init__(self, live: Followed[Any], after: int) -> None:
        self.is_done = False
        self._live: Final = live
        self._gap = b""
        if after > 0 and after + 1 < live.first:
            lost = {"type": "Gap", "from": after + 1, "to": live.first - 1}
            self._gap = b"event: Gap\ndata: %b\n\n" % orjson.dumps(lost)

    def say(self, entries: Sequence[Numbered]) -> bytes:
        self.is_done = self._live.ended is not None and entries[-1].number == self._live.last
        gap, self._gap = self._gap, b""
        return gap + b"".join([entry.sent() for entry in entries])

    def pause(self) -> bytes:
        return b""


class EventStream(Generic[E]):
    """Answers one request with the events behind a number, until the end, or until the client leaves."""

    def __init__(
        self,
        hosting: Hosting,
        live: Followed[E],
        wording: Wording[E],
        *,
        after: int = 0,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        """Raises:
        Refusal: too many clients follow events already.
        """
        check_followers(hosting)
        self._hosting, self._live, self._wording = hosting, live, wording
        self._after = max(after, live.first - 1)
        self._headers = [*HEADERS, *headers]
        self._loop = asyncio.get_running_loop()
        self._news: asyncio.Future[None] = self._loop.create_future()
        self._is_gone = self._has_begun = False
        self._last_sent_s = self._loop.time()
        self._is_quiet = False
        self._send_began_s = 0.0
        """When a piece was begun to be sent that is not taken yet; 0: none is."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watching = asyncio.ensure_future(until_gone(receive))
        watching.add_done_callback(self.leave)
        self._send = send
        self._guard = self._loop.call_later(min(SLOW_S, QUIET_S), self._check_pace)
        self._task = asyncio.current_task()
        self._hosting.n_followers += 1
        self._live.n_followers += 1
        try:
            await self._follow()
            if not self._is_gone:
                ended = self._live.ended
                goes_on_elsewhere = self._hosting.is_closing and ended is not None and ended.code is None
                # An EventSource asks again and again, until it hears that no more will come.
                await self._begin(200 if goes_on_elsewhere else 204)
                await self._send_data(b"", is_last=True)  # it may wait for the client, too
        finally:
            self._live.leave()
            self._hosting.n_followers -= 1
            self._live.forget(self._wake)
            self._guard.cancel()
            watching.cancel()

    async def _follow(self) -> None:
        live, wording = self._live, self._wording
        while not self._is_gone and not wording.is_done:
            entries = live.since(self._after)
            if entries:
                self._after = entries[-1].number
                data = wording.say(entries)
                if data:
                    await self._send_data(data)
            elif wording.may_pause:
                if not await self._wait_for_news(_TOGETHER_S):
                    await self._send_data(wording.pause())
            elif live.ended is not None and self._after >= live.last:
                return
            elif self._is_quiet:
                self._is_quiet = False
                await self._send_data(b": \n\n")
            else:
                await self._begin()
                await self._wait_for_news()

    async def _begin(self, status: int = 200) -> None:
        if not self._has_begun:
            self._has_begun = True
            headers = self._headers if status == 200 else self._headers[1:]  # 204 has no content, and no type of it
            await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _wait_for_news(self, patience_s: float | None = None) -> bool:
        """Wait for news. False: there are none."""
        if self._live.last > self._after or self._is_gone:
            return True
        news = self._news = self._loop.create_future()
        self._live.wake_by(self._wake)
        timer = None if patience_s is None else self._loop.call_later(patience_s, self._wake)
        try:
            await news
        finally:
            if timer is not None:
                timer.cancel()
        return self._live.last > self._after or self._is_gone

    def _wake(self) -> None:
        if not self._news.done():
            self._news.set_result(None)

    def leave(self, watching: asyncio.Future[None]) -> None:
        """Take note that the client has gone."""
        if not watching.cancelled():
            watching.exception()
            self._is_gone = True
            self._wake()

    async def _send_data(self, data: bytes, *, is_last: bool = False) -> None:
        self._send_began_s = self._last_sent_s = self._loop.time()
        await self._begin()
        await self._send({"type": "http.response.body", "body": data, "more_body": not is_last})
        self._send_began_s = 0.0

    def _check_pace(self) -> None:
        """Cut a client off that does not read; see to it that something is sent to the others now and then."""
        now_s = self._loop.time()
        if self._send_began_s and now_s - self._send_began_s >= SLOW_S and self._task is not None:
            self._is_gone = True
            self._task.cancel()
            return
        left_s = self._last_sent_s + QUIET_S - now_s
        if left_s <= 0:
            self._is_quiet, left_s = True, QUIET_S
            self._wake()
        self._guard = self._loop.call_later(min(SLOW_S, left_s), self._check_pace)


def check_followers(hosting: Hosting) -> None:
    """Check that one more client may wait or follow.

    Raises:
        Refusal: too many do.
    """
    if hosting.n_followers >= hosting.limits.followers:
        text = f"{hosting.limits.followers} clients follow runs, and the server serves no more."
        raise Refusal(503, "TOO_MANY_FOLLOWERS", text, "Ask again later.", retry_s=RETRY_S)
