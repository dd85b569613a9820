"""The addresses of hosts: which of them anybody may ask, and which lead to this machine and its neighbours."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
# Addresses of IPv6 that stand for one of IPv4, which is then what counts; the number is how many bits come after it.
_BEFORE_IPV4: Final = ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")
_TRANSLATED: Final = (*((ip_network(each), 0) for each in _BEFORE_IPV4), (ip_network("2002::/16"), 80))
# Not for the public either, though older versions of `ipaddress` do not say so.
_CLOSED: Final = tuple(
    map(
        ip_network,
        (
            *("100.64.0.0/10", "192.0.0.0/24", "192.88.99.0/24", "198.18.0.0/15"),
            *("64:ff9b:1::/48", "2001::/23", "fec0::/10"),
        ),
    )
)
_METADATA: Final = (ip_network("169.254.0.0/16"), ip_network("fe80::/10"))


def is_public(address: Address) -> bool:
    """Tell whether an address is one that anybody may ask."""
    real = _real_address(address)
    special = (
        *(real.is_private, real.is_loopback, real.is_link_local, real.is_multicast),
        *(real.is_reserved, real.is_unspecified, not real.is_global),
        *(each in network for network in _CLOSED for each in (address, real)),
    )
    return not any(special)


def may_be_reached(address: str, *, is_named: bool) -> bool:
    """Tell whether an address may be connected to. One that is not public may if its host is named so."""
    given = ip_address(address.partition("%")[0])
    real = _real_address(given)
    if any(real in network for network in _METADATA) or real.is_multicast or real.is_unspecified:
        return False
    return is_named or is_public(given)


def _real_address(address: Address) -> Address:
    """Return the address of IPv4 that one of IPv6 stands for; others as they are."""
    for network, after in _TRANSLATED if isinstance(address, IPv6Address) else ():
        if address in network:
            return IPv4Address((int(address) >> after) & 0xFFFF_FFFF)
    return address
