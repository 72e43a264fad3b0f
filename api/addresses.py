"""Who an address stands for, where something is counted by address."""

from __future__ import annotations

import ipaddress

#: Of an address of IPv6, what a provider gives to one customer: the rest is the customer's choice.
_CUSTOMER_BITS = 64
#: And what it gives to a customer who asks for more.
_SITE_BITS = 48


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


def site_of(address: str) -> str:
    """The /48 of an address of IPv6 of which :func:`customer_of` gives the /64; else nothing."""
    customer = customer_of(address)
    if not customer.endswith(f"/{_CUSTOMER_BITS}"):
        return ""
    return str(ipaddress.IPv6Network(customer).supernet(new_prefix=_SITE_BITS))
