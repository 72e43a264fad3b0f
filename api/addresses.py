"""Who an address stands for, where something is counted by address."""

from __future__ import annotations

import ipaddress

#: Of an address of IPv6, what a provider gives to one customer: the rest is the customer's choice.
_CUSTOMER_BITS = 64


def customer_of(address: str) -> str:
    """An address of IPv4, as it is or inside one of IPv6; the /64 of another of IPv6; other texts
    as they are."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    if found.is_loopback:
        return str(found)
    return str(ipaddress.ip_network((found, _CUSTOMER_BITS), strict=False))
