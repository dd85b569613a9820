"""An exchange with a provider, and the error for each way in which it fails before or within its answer.

By the class of what was raised, and never by its text; what is said of it names the host, and no key.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from journeyman.definition.data import lazy_dataclass
from journeyman.errors import ProviderError, ProviderErrorKind
from journeyman.hosts.proxies import Proxy, shown_address
from journeyman.models.sse import TooLarge
from journeyman.models.vendor_errors import CUT, LEAST_SECRET, Meaning, find_meaning
from journeyman.tools.redaction import scrub_secrets
from journeyman.types import NOTHING_USED, Usage

TRUST: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""The variables that name the authorities."""
_PUBLIC_HEADERS: Final = frozenset(
    {"accept", "accept-encoding", "content-type", "user-agent", "anthropic-version", "anthropic-beta"}
)


@lazy_dataclass(frozen=True, repr=False)
class Exchange:
    """The address and headers of a request, for error messages: they name the address, and never the headers, which
    hold the keys. Hence no repr."""

    url: str
    headers: Mapping[str, str]

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc.rpartition("@")[2] or self.url

    @property
    def address(self) -> str:
        """The whole address, except what may be secret in it: a password, and the values of the query."""
        address, mark, query = shown_address(self.url).partition("?")
        names = [pair.partition("=")[0] for pair in query.split("&")]
        return address + mark + "&".join([f"{name}=…" for name in names if name])

    def scrub_text(self, text: str) -> str:
        """Return `text` without the keys of the request, and without what looks like another secret."""
        values = [value for name, value in self.headers.items() if name.lower() not in _PUBLIC_HEADERS]
        words = [word for value in [*values, urlsplit(self.url).password or ""] for word in (value, *value.split())]
        return scrub_secrets(text, {word for word in words if len(word) >= LEAST_SECRET})

    def failure(
        self, words: str, kind: ProviderErrorKind, detail: object = "", *, usage: Usage | None = None
    ) -> ProviderError:
        detail = self.scrub_text(str(detail))  # alone, as it was written
        said = f" ({detail})" if detail else ""
        return ProviderError(self.scrub_text(f"{self.host} {words}{said}."), kind=kind, usage=usage)


FOREIGN: Final = (aiohttp.ClientError, HttpProcessingError, OSError, ValueError)
"""What aiohttp raises. `TimeoutError` is an `OSError`."""


class OnlyHeartbeats(TimeoutError):
    """A stream went on for too long without bringing anything."""


_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
"""OpenSSL's names for an answer that is not TLS."""
_TLS_ALERT: Final = r"\x15\x03"
"""How an answer in TLS to a request in the clear begins, as aiohttp quotes it."""
_PASSING_FOR_PROXIES: Final = (408, 425, 429)  # the request took too long, came too early, or was one too many


def failure_before(error: Exception, exchange: Exchange, proxy: Proxy | None = None) -> ProviderError:
    """Return the error for `error`, where no answer has begun."""
    known = _meaning_before(error, proxy)
    usage = NOTHING_USED if known.unbilled else None
    return exchange.failure(known.words, known.kind, _describe_error(error), usage=usage)


def _meaning_before(error: Exception, proxy: Proxy | None) -> Meaning:
    """Return what the error means, with what we know of the proxy, of TLS and of our own variables."""
    through = f" through the proxy of {proxy.variable}, {proxy.shown}" if proxy is not None else ""
    tls = error.__cause__ if isinstance(error, aiohttp.ClientSSLError) else error
    known = find_meaning(error, begun=False)
    kind: ProviderErrorKind = "bad_request"  # what is not repaired by asking again
    match error:
        case aiohttp.ClientConnectorCertificateError() | ssl.SSLCertVerificationError():
            advice = "SSL_CERT_FILE names other authorities"
            for other in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
                if other in os.environ and not any(map(os.environ.get, TRUST)):
                    advice = f"{other} is read by others alone: set SSL_CERT_FILE to the same file"
            words = f"has a certificate that is not trusted here{through}; {advice}"
        case aiohttp.ClientHttpProxyError(status=407):
            words = f"could not be reached{through}, which wants a name and a password. {_LOGIN}"
        case aiohttp.ClientHttpProxyError(status=status):
            kind = "network" if status >= 500 or status in _PASSING_FOR_PROXIES else "bad_request"
            words = f"could not be reached{through}, which answered {status}"
        case aiohttp.ClientResponseError() if _TLS_ALERT in error.message:
            words = "speaks TLS at this port, and was asked in the clear: write https:// in base_url"
        case _ if isinstance(tls, ssl.SSLError) and tls.reason in _NO_TLS:
            words = f"does not speak TLS at this port{through}; if it speaks plain HTTP, write http:// in base_url"
        case aiohttp.ClientError() | HttpProcessingError() | OSError() if known is not None:
            return known._replace(words=known.words + through * isinstance(error, aiohttp.ClientConnectorError))
        case ValueError():
            words = "could not be asked: the URL or a header is invalid"
        case _:  # of the package for SOCKS
            kind, words = "network", f"could not be reached{through}"
    return Meaning(kind, words, unbilled=True)


_LOGIN: Final = "Write them into the variable: http://NAME:PASSWORD@HOST:PORT"


def failure_within(error: Exception, exchange: Exchange) -> ProviderError:
    """Return the error for `error`, where the answer had begun. The usage is not known here."""
    match error:
        case TooLarge():
            return exchange.failure("sent more in one piece than can be right", "unknown", error)
        case OnlyHeartbeats():
            return exchange.failure("kept the connection open without going on with its answer", "stream_idle", error)
        case _:
            known = find_meaning(error, begun=True) or CUT
            return exchange.failure(known.words, known.kind, _describe_error(error))


def _describe_error(error: Exception) -> str:
    # The text of a ClientResponseError quotes the whole URL; aiohttp tells its TLS where there is none, too.
    text = error.message if isinstance(error, aiohttp.ClientResponseError) else str(error).replace(" ssl:default", "")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
