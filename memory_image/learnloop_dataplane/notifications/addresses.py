"""Where a message may go: to addresses of the internet alone, unless the installation says otherwise.

The name is resolved once, and the connection goes to just that address: a name that means another address a moment
later leads nowhere else (DNS rebinding).
"""

import asyncio
import ipaddress
import socket
from urllib.parse import urlsplit


class Refused(Exception):
    """No message is sent there; says why and what to set."""


async def resolved(url: str, *, private: bool) -> tuple[str, str]:
    """The address to connect to, and the name that the server must have a certificate for.

    Raises:
        Refused: an address inside, or plain HTTP to one outside.
        OSError: the name is not known.
    """
    parts = urlsplit(url)
    name = parts.hostname or ""
    if parts.scheme != "https" and not private:
        said = "messages leave by https only; use https, or set privateAddresses: true"
        raise Refused(f"{parts.scheme}://{name}: {said}")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    addresses = [str(item[4][0]) for item in found]
    inside = [address for address in addresses if not _outside(address)]
    if inside and not private:
        raise Refused(
            f"{name} means {inside[0]}, which is not of the internet; "
            "set privateAddresses: true of the receiver where that is meant"
        )
    if not addresses:
        raise Refused(f"{name} means no address")
    return addresses[0], name


def _outside(address: str) -> bool:
    found = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_global and not found.is_multicast
