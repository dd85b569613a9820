"""The proxy for an address, from the variables that every program reads: one reading, for models and for pages.

A variable that cannot be followed is named in the error, and nothing is sent: a request that goes around the proxy, or
to it in the wrong protocol, would show the key and the prompt to somebody else.
"""

from __future__ import annotations

import os
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final, TypeAlias
from urllib.parse import SplitResult, urlsplit

VARIABLES: Final = (
    *("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"),
    "REQUEST_METHOD",
)
"""What the choice depends on."""

_SCHEMES: Final = ("http", "https", "socks4", "socks4a", "socks5", "socks5h")
_QUOTES: Final = ('"', "'")
_PORTS: Final = {"http": 80, "https": 443}

_Address: TypeAlias = IPv4Address | IPv6Address


class ProxyRefused(ValueError):
    """A variable names a proxy, or addresses without one, in a way that cannot be followed."""


@dataclass(frozen=True, slots=True, repr=False)
class Proxy:
    """The proxy for one address. It has no repr of its URL, which may hold a password."""

    url: str
    """Its whole address, with the name and the password if there are some."""
    variable: str
    """The variable that names it."""

    @property
    def is_socks(self) -> bool:
        return self.url.startswith("socks")

    @property
    def shown(self) -> str:
        """The address without name and password."""
        return shown_address(self.url)


def find_proxy(url: str, environment: Mapping[str, str] = os.environ) -> Proxy | None:
    """Return the proxy through which `url` is to be asked; None: it is asked directly, as this machine always is.

    Raises:
        ProxyRefused: the variable for it has no address of a proxy, or NO_PROXY has a network that is none.
    """
    parts = urlsplit(url)
    host, variable = (parts.hostname or "").rstrip("."), _variable_for(parts.scheme, environment)
    if variable is None and sys.platform in ("darwin", "win32") and not any(map(environment.get, VARIABLES)):
        return _of_system(parts.scheme, host)
    if variable is None or is_this_machine(host) or _is_excepted(parts, host, environment):
        return None
    return Proxy(_address_in(variable, environment[variable]), variable)


def is_this_machine(host: str) -> bool:
    """Return whether a host is this machine under one of the names that always mean it."""
    address = _ip_of(host)
    if address is not None:
        return address.is_loopback or address.is_unspecified  # servers say that they listen at 0.0.0.0
    return host == "localhost" or host.endswith(".localhost")


def shown_address(url: str) -> str:
    """Return an address without what stands before `@`, a name and a password."""
    scheme, mark, rest = url.rpartition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{mark}{authority.rpartition('@')[2]}{slash}{path}"


def _variable_for(scheme: str, environment: Mapping[str, str]) -> str | None:
    """Return the variable that names the proxy for a scheme: a lower-case one wins, also by being empty."""
    for name in (f"{scheme}_proxy", "all_proxy"):
        # On a server that runs CGI programs, a request's header `Proxy` becomes HTTP_PROXY.
        is_forged = name == "http_proxy" and "REQUEST_METHOD" in environment
        variable = name if name in environment or is_forged else name.upper()
        if _strip_quotes(variable, environment.get(variable, "")):
            return variable
    return None


def _strip_quotes(variable: str, value: str) -> str:
    """Return a value without the quotes that `docker run --env-file` leaves around it."""
    value = value.strip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in _QUOTES:
        value = value[1:-1].strip()
    if value.startswith(_QUOTES) or value.endswith(_QUOTES):
        raise ProxyRefused(f"{variable} has a quotation mark that is not closed. Write the value without quotes")
    return value


def _address_in(variable: str, value: str) -> str:
    """Return the address of the proxy that a variable names; one without a scheme is asked over HTTP."""
    value = _strip_quotes(variable, value)
    url = value if "://" in value else f"http://{value}"
    try:
        parts = urlsplit(url)
        is_whole = bool(parts.hostname) and not any(map(str.isspace, url)) and parts.port != 0
    except ValueError:  # the port is none, or the brackets of an address are not closed
        is_whole = False
    if not is_whole:
        words = f"{variable} is {shown_address(value)!r}, which is not the address of a proxy"
        raise ProxyRefused(f"{words}. Write it as http://HOST:PORT")
    scheme = url.partition("://")[0].lower()
    if scheme not in _SCHEMES:
        known = ", ".join(_SCHEMES)
        raise ProxyRefused(f"{variable} is {shown_address(value)!r}, but a proxy is asked over one of: {known}")
    return scheme + url[len(scheme) :]


def _is_excepted(parts: SplitResult, host: str, environment: Mapping[str, str]) -> bool:
    variable = "no_proxy" if "no_proxy" in environment else "NO_PROXY"
    entries = _strip_quotes(variable, environment.get(variable, "")).replace(",", " ").split()
    try:
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:  # no number: the request will fail by that
        port = None
    return any([_covers(variable, entry, host, port) for entry in entries])


def _covers(variable: str, entry: str, host: str, port: int | None) -> bool:
    """Return whether an entry names a host: `*`, a network, an address or a name, the last two perhaps with a port.

    A name stands for all names that end in it, whether it is written `corp`, `.corp` or `*.corp`.
    """
    if entry == "*":
        return True
    entry = entry.rpartition("://")[2].rstrip("/").lower() if "://" in entry else entry.lower()
    if "/" in entry:
        return _is_within(variable, entry, host)
    before, colon, wanted = entry.rpartition(":")
    if (named := _ip_of(entry)) is None and colon and wanted.isascii() and wanted.isdigit():
        if int(wanted) != port:
            return False
        entry = before
        named = _ip_of(entry)
    if named is not None:
        return named == _ip_of(host)
    name = entry.removeprefix("*").strip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))


def _is_within(variable: str, entry: str, host: str) -> bool:
    try:
        network = ip_network(entry, strict=False)
    except ValueError:
        words = f"{variable} has {entry!r}, which is not a network"
        raise ProxyRefused(f"{words}. Write it like 10.0.0.0/8, or name the hosts") from None
    address = _ip_of(host)
    return address is not None and address in network


def _ip_of(host: str) -> _Address | None:
    try:
        address = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def _of_system(scheme: str, host: str) -> Proxy | None:
    """Return the proxy of the system's own settings, which count where no variable says anything."""
    found: Iterator[str] = iter(filter(None, map(urllib.request.getproxies().get, (scheme, "all"))))
    if is_this_machine(host) or urllib.request.proxy_bypass(host) or (value := next(found, None)) is None:
        return None
    name = "the system's settings for proxies"
    return Proxy(_address_in(name, value), name)
