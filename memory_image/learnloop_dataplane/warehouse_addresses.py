"""Where the warehouse is: `clickhouse://user:password@one:8123,two:8123/database?secure=true`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

SCHEME = "clickhouse"
PLAIN, ENCRYPTED = 8123, 8443
ENCRYPTED_PORTS = (443, ENCRYPTED)
OPTIONS = ("secure", "verify", "ca_cert", "client_cert", "client_cert_key", "server_host_name", "tls_mode")
"""Of TLS; all but `secure` as clickhouse-connect names them."""
_SWITCHES = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class Addresses:
    """The servers of one warehouse, in the order in which they are asked."""

    servers: tuple[tuple[str, int], ...]
    login: Mapping[str, Any]  # arguments of clickhouse-connect that are the same for all

    @classmethod
    def parse(cls, dsn: str) -> "Addresses":
        """Raises ValueError, which says what is wrong and nothing of the login."""
        try:
            found = urlsplit(dsn)
        except ValueError:
            raise ValueError(f"is no URL; write {SCHEME}://user:password@host:8123/database") from None
        if found.scheme != SCHEME:
            raise ValueError(f"does not start with {SCHEME}://; give the URL of the warehouse")
        options: dict[str, Any] = dict(parse_qsl(found.query))
        if unknown := sorted(set(options) - set(OPTIONS)):
            raise ValueError(f"has the options {', '.join(unknown)}; there are {', '.join(OPTIONS)}")
        for name in ("secure", "verify"):
            if name in options:
                options[name] = _switch(name, options[name])
        secure = options.pop("secure", None)
        who, _, where = found.netloc.rpartition("@")
        user, _, password = who.partition(":")
        servers = tuple(_server(item, secure=bool(secure)) for item in where.split(","))
        if secure is None:
            secure = all(port in ENCRYPTED_PORTS for _, port in servers)
        login: dict[str, Any] = {
            "interface": "https" if secure else "http",
            "username": unquote(user) or ("default" if password else None),
            "password": unquote(password),
            "database": unquote(found.path.strip("/").split("/")[0]) or None,
        }
        return cls(servers, login | options)


def _switch(name: str, value: str) -> bool:
    if value.lower() not in _SWITCHES:
        raise ValueError(f"has {name}={value[:20]}; it is true or false")
    return _SWITCHES[value.lower()]


def _server(text: str, *, secure: bool) -> tuple[str, int]:
    bracket = text.rfind("]")
    host, colon, port = text.rpartition(":") if text.rfind(":") > bracket else (text, "", "")
    host = host.strip("[]")
    if not host:
        raise ValueError("has an address without a host; separate host:port from host:port by one comma")
    if not colon:
        return host, ENCRYPTED if secure else PLAIN
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise ValueError(f"has the port {port[:20]!r} at {host[:100]}; a port is a number from 1 to 65535")
    return host, int(port)
