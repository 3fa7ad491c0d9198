"""Where a message may go: to addresses of the internet alone, unless the installation says otherwise.

The name is resolved once, and the connection goes to just that address: a name that means another address a moment
later leads nowhere else (DNS rebinding).
"""

import asyncio
import ipaddress
import socket
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple
from urllib.parse import urlsplit

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA = frozenset(
    ipaddress.ip_address(one)
    for one in ("169.254.169.254", "100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254", "fd20:ce::254")
)
"""Where clouds hand their machines credentials, by the manuals of AWS, Google, Azure, Alibaba and Oracle."""
_CARRIERS = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "::ffff:0:0:0/96", "::/96")))
"""RFC 6052, 2765 and 4291: the last four bytes are the IPv4 address that is meant. Python calls what else lies in the
block that is reserved for such things global, also the NAT64 of a network's own (RFC 8215)."""
_SITE_LOCAL = ipaddress.ip_network("fec0::/10")
"""As private as fc00::/7, which took its place (RFC 3879); Python calls it global."""


class RefusedAddress(Exception):
    """No message is sent there; says why and what to set."""


class Place(NamedTuple):
    """The address to connect to, and the name that the server must have a certificate for."""

    address: str
    name: str


async def resolved(url: str, *, private: bool, threads: Executor | None = None) -> Place:
    """Where a URL leads.

    Args:
        threads: that ask for the address, for a name server that does not answer holds its thread.

    Raises:
        RefusedAddress: an address inside, or plain HTTP to one outside.
        OSError: the name is not known.
    """
    parts = urlsplit(url)
    name = parts.hostname or ""
    if parts.scheme != "https" and not private:
        said = "messages leave by https only; use https, or set privateAddresses: true"
        raise RefusedAddress(f"{parts.scheme}://{name}: {said}")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return await looked_up(name, port, private=private, threads=threads)


async def looked_up(name: str, port: int, *, private: bool, threads: Executor | None = None) -> Place:
    """Where a name leads, whatever is spoken there.

    Raises:
        RefusedAddress: it means an address inside and `private` is False, or one where no receiver can be.
        OSError: the name is not known.
    """
    look = partial(socket.getaddrinfo, name, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(threads, look)
    addresses = [str(item[4][0]) for item in found]
    if not addresses:
        raise RefusedAddress(f"{name} means no address")
    for address in addresses:
        meant = _meant(address)
        if meant in _METADATA or meant.is_link_local or meant.is_multicast or meant.is_unspecified:
            raise RefusedAddress(f"{name} means {address}, where no receiver can be: name another host")
        if (not meant.is_global or meant.is_reserved or meant in _SITE_LOCAL) and not private:
            raise RefusedAddress(
                f"{name} means {address}, which is not of the internet; "
                "set privateAddresses: true of the receiver where that is meant"
            )
    return Place(addresses[0], name)


def _meant(address: str) -> IpAddress:
    """The address at the end of the way: that of IPv4 where an IPv6 address only carries one."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv4Address):
        return found
    if int(found) > 1 and any(found in carrier for carrier in _CARRIERS):
        return ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
    return found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else found)
