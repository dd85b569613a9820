"""Answers as the decoders read them, without a server: what the tests of all of them share."""

from collections.abc import Iterable

import orjson
import pytest

from journeyman.errors import ProviderError
from journeyman.model import Collector, Part, Response, UsageSeen
from journeyman.models.decoding import Decoder
from tests.models.asking import Json

__all__ = ["Json", "Part", "Response", "UsageSeen", "failed", "fed", "summed"]


def fed(decoder: Decoder, events: Iterable[Json | bytes]) -> list[Part]:
    """Return the parts of whole events, given as JSON or as bytes."""
    given = (event if isinstance(event, bytes) else orjson.dumps(event) for event in events)
    return [*(part for data in given for part in decoder.parts([(b"", data)])), *decoder.end()]


def failed(decoder: Decoder, events: Iterable[Json | bytes]) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        fed(decoder, events)
    return caught.value


def summed(parts: Iterable[Part]) -> Response:
    collector = Collector()
    for part in parts:
        collector.add(part)
    return collector.response()
