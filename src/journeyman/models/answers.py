"""The parts of an answer over HTTP, whether it came in events or in one piece, by whatever decoder reads it.

Imports `errors`, `model`, `transport` and `refusal`. Read an adapter next.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Final, Protocol

from journeyman.errors import ProviderError
from journeyman.model import Part
from journeyman.models.refusal import quoted
from journeyman.models.sse import Event
from journeyman.models.transport import Answer
from journeyman.types import Usage

_QUOTED_BYTES: Final = 2_048


class Decoder(Protocol):
    """Turns one answer into parts. Everything raises `ProviderError` for an answer that is damaged or an error."""

    @property
    def complete(self) -> bool:
        """True when the last part was given."""
        ...

    def parts(self, events: Iterable[Event]) -> Iterator[Part]:
        """Yield the parts that some events bring."""
        ...

    def document(self, data: bytes) -> Sequence[Part]:
        """Return the parts of an answer in one piece."""
        ...

    def end(self) -> Sequence[Part]:
        """Return what is left to say when the events have ended."""
        ...

    def usage(self) -> Usage | None:
        """Return what the answer has reported as used so far; None before it has reported anything."""
        ...


class Asked(AbstractAsyncContextManager[AsyncIterator[Part]]):
    """A request to a model, open as long as the block, which reads its answer. A class, since it is made for each."""

    __slots__ = ("_decoder", "_expected", "_open", "_opened", "_refused")

    def __init__(
        self,
        open: Callable[[], AbstractAsyncContextManager[Answer]],
        decoder: Decoder,
        *,
        refused: Callable[[Answer], Awaitable[ProviderError]],
        expected: str,
    ) -> None:
        """`open` posts the request when the block is entered; `refused` says what a failure status means;
        `expected` is for `Parts`."""
        self._open = open
        self._decoder = decoder
        self._refused = refused
        self._expected = expected

    async def __aenter__(self) -> AsyncIterator[Part]:
        self._opened = self._open()
        answer = await self._opened.__aenter__()
        if answer.status < 300:
            return Parts(answer, self._decoder, expected=self._expected)
        try:
            raise await self._refused(answer)
        finally:
            await self._opened.__aexit__(None, None, None)

    async def __aexit__(self, *raised: object) -> None:
        await self._opened.__aexit__(None, None, None)


class Parts:
    """An asynchronous iterator over the parts of one answer. Holds nothing open: `open_stream` does."""

    __slots__ = ("_answer", "_comes_in_events", "_decoder", "_expected", "_is_over", "_ready")

    def __init__(self, answer: Answer, decoder: Decoder, *, expected: str) -> None:
        """`expected` says in an error message what the answer is not, for example `a Messages API stream`."""
        self._answer = answer
        self._comes_in_events = answer.media_type == "text/event-stream"
        self._decoder = decoder
        self._expected = expected
        self._ready: Iterator[Part] = iter(())
        self._is_over = False

    def __aiter__(self) -> Parts:
        return self

    async def __anext__(self) -> Part:
        try:
            while (part := next(self._ready, None)) is None:
                if self._is_over:
                    raise StopAsyncIteration
                self._ready = await self._more()
        except ProviderError as error:
            failure = self._completed(error)
        else:
            return part
        raise failure.with_traceback(None)  # the frames of decoders hold what the service said, which may echo the key

    def _completed(self, error: ProviderError) -> ProviderError:
        """Add what a decoder does not know: the keys, which must not be shown, the status and the use so far."""
        answer = self._answer
        error.args = (answer.scrubbed(str(error)),)
        error.status = error.status or answer.status
        error.request_id = error.request_id or answer.request_id
        if error.usage is None and (seen := self._decoder.usage()) is not None:
            error.usage = replace(seen, exact=False)
        return error

    async def _more(self) -> Iterator[Part]:
        answer, decoder = self._answer, self._decoder
        if self._comes_in_events:
            events = () if decoder.complete else await answer.events()
            if events:
                return decoder.parts(events)
            await answer.drain()
            parts = decoder.end()
        elif answer.media_type == "application/json":
            parts = decoder.document(await answer.body())
        else:
            found = quoted(answer, await answer.body(_QUOTED_BYTES))
            raise answer.failure(f"did not answer with {self._expected}", "unknown", found)
        self._is_over = True
        return iter(parts)
