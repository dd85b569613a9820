"""Keeping this package off the network while a cassette is replayed.

`transport.py` asks here before each request. Imports nothing, so that asking for silence does not load aiohttp.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Silence:
    """A time in which nobody may be asked."""

    reason: str
    refused: list[str] = field(default_factory=list[str])
    """The hosts that would have been asked."""


# Of the whole process: a context variable would not reach a test's event loop, which may have been there before.
_silences: list[Silence] = []


@contextmanager
def offline(reason: str) -> Generator[Silence]:
    """Refuse every request over our transport, in any event loop of this process, until the block ends."""
    silence = Silence(reason)
    _silences.append(silence)
    try:
        yield silence
    finally:
        _silences.remove(silence)


def is_offline() -> bool:
    """Tell whether nobody may be asked now."""
    return bool(_silences)


def refusal(host: str) -> str:
    """Note that `host` would have been asked, and return why it must not be."""
    for silence in _silences:
        silence.refused.append(host)
    return _silences[-1].reason
