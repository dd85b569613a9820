"""Which addresses of the network may be asked: public ones, and those that were allowed. Imports `refusal`."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

from journeyman.toolbox.refusal import Refusal

Address: TypeAlias = IPv4Address | IPv6Address

# IPv6 addresses that stand for one of IPv4, which is then what counts; the number is how many bits come after it.
_TRANSLATED: Final = (
    (ip_network("::ffff:0:0/96"), 0),
    (ip_network("64:ff9b::/96"), 0),
    (ip_network("::/96"), 0),
    (ip_network("2002::/16"), 80),
)
# Not for the public either, though older versions of `ipaddress` do not say so.
_CLOSED: Final = tuple(
    map(
        ip_network,
        (
            "100.64.0.0/10",
            "192.0.0.0/24",
            "192.88.99.0/24",
            "198.18.0.0/15",
            "64:ff9b:1::/48",
            "2001::/23",
            "fec0::/10",
        ),
    )
)


def is_public(address: Address) -> bool:
    """Tell whether an address is one that anybody may ask."""
    inner = _inner(address)
    if inner is not None:
        return is_public(inner)
    special = (
        *(address.is_private, address.is_loopback, address.is_link_local, address.is_multicast),
        *(address.is_reserved, address.is_unspecified, not address.is_global),
        *(address in network for network in _CLOSED),
    )
    return not any(special)


def _inner(address: Address) -> IPv4Address | None:
    if isinstance(address, IPv6Address):
        for network, after in _TRANSLATED:
            if address in network:
                return IPv4Address((int(address) >> after) & 0xFFFF_FFFF)
    return None


@dataclass(frozen=True, slots=True)
class Allowed:
    """What may be asked beyond public addresses."""

    hosts: frozenset[str]
    networks: tuple[IPv4Network | IPv6Network, ...]

    @classmethod
    def of(cls, names: Iterable[str]) -> Allowed:
        """Read names of hosts, addresses and networks."""
        hosts: set[str] = set()
        networks: list[IPv4Network | IPv6Network] = []
        for name in names:
            try:
                networks.append(ip_network(name, strict=False))
            except ValueError:
                hosts.add(name.lower().rstrip("."))
        return cls(frozenset(hosts), tuple(networks))

    def covers(self, address: Address) -> bool:
        """Tell whether an address may be asked."""
        return is_public(address) or any(address in network for network in self.networks)


async def checked_addresses(host: str, port: int, allowed: Allowed) -> Sequence[tuple[socket.AddressFamily, str]]:
    """Look a host up, and return its addresses. They are what is to be asked, without looking it up again.

    Raises:
        Refusal: it has none, or any of them must not be asked.
    """
    found = await _looked_up(host, port)
    if host.lower().rstrip(".") not in allowed.hosts:
        for _, text in found:
            if not allowed.covers(ip_address(text.partition("%")[0])):
                which = f"{host} is" if text == host else f"{host} is {text}, which is"
                raise Refusal("address", f"{which} not a public address, so it is not asked. Use a public URL.")
    return found


async def _looked_up(host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Refusal("unreachable", f"{host} cannot be looked up: {error}.") from error
    return [(family, str(address[0])) for family, _, _, _, address in found]
