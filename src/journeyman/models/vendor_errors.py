"""A reading of other packages' exceptions, for carriers of requests: by the names of their classes, not their words.

A carrier is aiohttp, an official SDK or another library; which HTTP client it uses is its own affair, so nothing is
imported here to recognise its exceptions. And nothing of them is passed on but a text without secrets: they hold
requests, and with them keys.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from ssl import SSLCertVerificationError
from typing import Final, NamedTuple

from journeyman.errors import ProviderErrorKind, name_and_words
from journeyman.tools.redaction import scrub_secrets

_QUOTED_CHARACTERS: Final = 500
_SECRET_NAME: Final = re.compile(r"(?i)key|token|secret|passw|credential|authorization")
LEAST_SECRET: Final = 7
"""Shorter values are not taken for secrets: they would be found in ordinary words."""


class Meaning(NamedTuple):
    """An exception in our terms: its kind, a text for it, and whether the request may have been billed."""

    kind: ProviderErrorKind
    words: str
    """What happened: the words that follow the name of the host."""
    unbilled: bool = False
    """True when nothing can have been billed."""


_SILENCES: Final = ("TimeoutException", "ReadTimeoutError", "ServerTimeoutError", "TimeoutError")
# By the name of a class or one of its bases: of httpx and its successor, of aiohttp, botocore and urllib3, or built in.
_BEFORE: Final[Mapping[str, Meaning]] = {
    **dict.fromkeys(
        ("ConnectTimeout", "ConnectTimeoutError", "ConnectionTimeoutError"),
        Meaning("timeout", "could not be reached in time", True),
    ),
    "PoolTimeout": Meaning("timeout", "had no connection left in time", True),
    **dict.fromkeys(_SILENCES, Meaning("timeout", "did not begin to answer in time")),
    "ClientSSLError": Meaning("network", "could not be reached over TLS", True),
    "ServerFingerprintMismatch": Meaning("bad_request", "has another certificate than expected", True),
    "ProxyError": Meaning("network", "could not be reached: the proxy refused", True),
    **dict.fromkeys(
        ("ConnectError", "ClientConnectorError", "EndpointConnectionError", "ConnectionRefusedError"),
        Meaning("network", "could not be reached", True),
    ),
    "ClientResponseError": Meaning("unknown", "did not answer in HTTP"),
    "HttpProcessingError": Meaning("unknown", "did not answer in HTTP"),
    "NonHttpUrlClientError": Meaning("bad_request", "has a URL that is not http or https", True),
    "InvalidURL": Meaning("bad_request", "could not be asked: the URL is invalid", True),
    "UnsupportedProtocol": Meaning("bad_request", "could not be asked: the URL is invalid", True),
    "LocalProtocolError": Meaning("bad_request", "could not be asked: a header is invalid", True),
    **dict.fromkeys(
        ("TransportError", "ClientError", "HTTPClientError", "OSError"),
        Meaning("network", "closed the connection before answering"),
    ),
}
_UNTRUSTED: Final = Meaning("bad_request", "has a certificate that is not trusted here", True)
CUT: Final = Meaning("stream_cut", "broke off in the middle of an answer")
_WITHIN: Final[Mapping[str, Meaning]] = {
    **dict.fromkeys(_SILENCES, Meaning("stream_idle", "stopped sending in the middle of an answer")),
    **dict.fromkeys(("TransportError", "StreamError", "DecodingError", "ClientError", "HTTPClientError"), CUT),
    **dict.fromkeys(("HttpProcessingError", "OSError", "ValueError"), CUT),  # the last: it is no JSON, or no text
}


def find_meaning(error: BaseException, *, begun: bool) -> Meaning | None:
    """Return the meaning of an exception, or else of the one that it was raised from; None when neither is known.

    `begun`: whether the answer had begun.
    """
    table = _WITHIN if begun else _BEFORE
    chain = [*_chain_of(error)]
    if any([isinstance(each, SSLCertVerificationError) for each in chain]):
        return _UNTRUSTED
    names = [kind.__name__ for each in chain for kind in type(each).__mro__]
    return next((table[name] for name in names if name in table), None)


def _chain_of(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    for _ in range(8):  # a chain of causes may be a circle
        if seen is None:
            return
        yield seen
        seen = seen.__cause__ or seen.__context__


def quote_error(error: BaseException) -> str:
    """Return the class and the beginning of the text of an exception."""
    return name_and_words(error)[:_QUOTED_CHARACTERS]


def scrub_error(text: str, secrets: Iterable[str]) -> str:
    """Return `text` without `secrets`, without what the environment holds as such, and without what looks like one."""
    found = {*secrets, *named_secrets(os.environ)}
    return scrub_secrets(text, [secret for secret in found if len(secret) >= LEAST_SECRET])


def named_secrets(holder: Mapping[str, object]) -> list[str]:
    """Return the texts that `holder` keeps under names such as `api_key`, `auth_token` or `Authorization`."""
    texts = [value for name, value in holder.items() if isinstance(value, str) and _SECRET_NAME.search(name)]
    return [word for text in texts for word in (text, *text.split())]
