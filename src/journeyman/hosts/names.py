"""The names of hosts, as rules, boxes and needs give them: `example.org`, `*.example.org`, `example.org:8443`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from journeyman.errors import Problem

_HOST: Final = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*(:[0-9]{1,5})?")
_NUMBERS: Final = re.compile(r"(0x[0-9a-f]+|[0-9]+)(\.(0x[0-9a-f]+|[0-9]+))*")
_LARGEST_PORT: Final = 65_535
_USUAL_PORTS: Final = (80, 443)


def host_problem(host: str) -> Problem | None:
    """Return why something is no name of a host, perhaps with a port or for all below it; None if it is one. An address
    is none: it says nothing about whose it is."""
    name, _, port = host.partition(":")
    if _HOST.fullmatch(host) is not None and not _NUMBERS.fullmatch(name) and 0 < int(port or 1) <= _LARGEST_PORT:
        return None
    hint = "Write a name such as 'example.org', '*.example.org' or 'example.org:8443', in small letters."
    return Problem("INVALID_HOST", f"hosts holds {host!r}, which is no name of a host.", hint)


def fits_host(pattern: str, host: str) -> bool:
    """Tell whether a pattern means a host: `*`, which no box takes, `*.` before a name, or a name alone."""
    if pattern.startswith("*."):
        return host.endswith(pattern[1:]) and len(host) >= len(pattern)
    return pattern in ("*", host)


def allows(hosts: Iterable[str], name: str, port: int) -> bool:
    """Tell whether hosts, as a `Box` names them, hold one: at the ports 80 and 443, or at the port that is named."""
    parts = [entry.partition(":") for entry in hosts]
    return any(
        fits_host(pattern, name) and (port == int(given) if given else port in _USUAL_PORTS)
        for pattern, _, given in parts
    )
