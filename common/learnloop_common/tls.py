"""SSL contexts that follow their files: a renewed certificate or authority counts from the next handshake on.

asyncio, uvloop, httpx, aiohttp, nats-py and uvicorn all ask an `ssl.SSLContext` for one object per connection
(`wrap_bio`, `wrap_socket`). So a context that hands this question to the newest one of its own making is all that a
renewal takes; connections that are open stay as they are.
"""

import logging
import os
import ssl
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from learnloop_api import names

log = logging.getLogger(__name__)
Stamp = tuple[tuple[int, int, int] | None, ...]
"""Inode, size and time of each file: a Secret's volume changes by another link, never in place."""


class FollowingContext(ssl.SSLContext):
    """Hands each handshake to the newest context that its files gave.

    Files that cannot be read, or do not fit one another, change nothing: the last good context serves on, and the next
    handshake looks again. Only the first reading raises.
    """

    _make: Callable[[], ssl.SSLContext]
    _files: tuple[Path, ...]
    _stamp: Stamp
    _current: ssl.SSLContext

    def __new__(cls, protocol: int, make: Callable[[], ssl.SSLContext], files: tuple[Path, ...]) -> "FollowingContext":
        """Raises OSError (ssl.SSLError is one) where the files give no context now."""
        self = super().__new__(cls, protocol)
        self._make, self._files = make, files
        self._stamp, self._current = _stamp(files), make()
        return self

    def __init__(self, *_: Any) -> None:
        """ssl.SSLContext has done all in __new__."""

    @property
    def newest(self) -> ssl.SSLContext:
        """The context of the next handshake."""
        stamp = _stamp(self._files)
        if stamp != self._stamp:
            try:
                self._current = self._make()
            except (OSError, ValueError) as error:
                log.warning("TLS: %s do not fit, so the ones before serve on: %s", _names(self._files), error)
            else:
                self._stamp = stamp
                log.info("TLS: %s were read again", _names(self._files))
        return self._current

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """ssl.SSLContext.wrap_bio of the newest context."""
        return self.newest.wrap_bio(*arguments, **options)

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        """ssl.SSLContext.wrap_socket of the newest context."""
        return self.newest.wrap_socket(*arguments, **options)


def server_context(certificate: Path, key: Path) -> FollowingContext:
    """The context of a server.

    Args:
        certificate: PEM, the leaf first and what it was made by after it; key: PEM.

    Raises:
        OSError: a file is missing, or the two do not fit.
    """

    def make() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")  # of TLS 1.2; 1.3 has its own
        context.load_cert_chain(certificate, key)
        return context

    return FollowingContext(ssl.PROTOCOL_TLS_SERVER, make, (certificate, key))


def own_context(env: Mapping[str, str] = os.environ) -> FollowingContext | None:
    """A server's context from the files of $LEARNLOOP_TLS_CERTIFICATE and $LEARNLOOP_TLS_KEY; None: plain HTTP.

    Raises:
        ValueError: only one of the two variables is set.
        OSError: a file is missing, or the two do not match.
    """
    certificate, key = env.get(names.ENV_TLS_CERTIFICATE, ""), env.get(names.ENV_TLS_KEY, "")
    if bool(certificate) != bool(key):
        raise ValueError(f"{names.ENV_TLS_CERTIFICATE} and {names.ENV_TLS_KEY} go together: set both, or neither")
    return server_context(Path(certificate), Path(key)) if certificate else None


def client_context(env: Mapping[str, str] = os.environ) -> FollowingContext:
    """Trusts the system's authorities, and learnloop's where they are mounted.

    The file is that of $LEARNLOOP_TLS_CA, else the one next to the token; it may appear later. Where
    $LEARNLOOP_TLS_CERTIFICATE and $LEARNLOOP_TLS_KEY are set and there, servers that ask are shown that certificate.
    """
    return _client_context(authorities(env), _own_pair(env))


@cache  # reading the system's authorities takes 20 ms and a MiB, so all clients of a process share them
def _client_context(bundle: Path, own: tuple[Path, Path] | None) -> FollowingContext:
    def make() -> ssl.SSLContext:
        context = ssl.create_default_context()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _trust_the_public(context)
        if bundle.is_file():
            context.load_verify_locations(bundle)
        if own is not None and all(file.is_file() for file in own):
            context.load_cert_chain(*own)
        return context

    return FollowingContext(ssl.PROTOCOL_TLS_CLIENT, make, (bundle, *(own or ())))


def authorities(env: Mapping[str, str] = os.environ) -> Path:
    """File of learnloop's authorities, if TLS is on."""
    return Path(env.get(names.ENV_TLS_CA) or names.CA_FILE)


def scheme(env: Mapping[str, str] = os.environ) -> str:
    """`https` where learnloop's authorities are mounted, for addresses without a scheme."""
    return "https" if authorities(env).is_file() else "http"


def _trust_the_public(context: ssl.SSLContext) -> None:
    """Images without the system's authorities have those that httpx brings."""
    if context.cert_store_stats()["x509_ca"] == 0:
        try:
            import certifi
        except ImportError:
            return
        context.load_verify_locations(certifi.where())


def with_scheme(address: str, env: Mapping[str, str] = os.environ) -> str:
    """The URL of an address that may lack its scheme: then it is by TLS where learnloop's authorities are mounted."""
    return address if not address or "://" in address else f"{scheme(env)}://{address}"


def _own_pair(env: Mapping[str, str]) -> tuple[Path, Path] | None:
    certificate, key = env.get(names.ENV_TLS_CERTIFICATE), env.get(names.ENV_TLS_KEY)
    return (Path(certificate), Path(key)) if certificate and key else None


def _stamp(files: tuple[Path, ...]) -> Stamp:
    return tuple(_mark(file) for file in files)


def _mark(file: Path) -> tuple[int, int, int] | None:
    try:
        facts = file.stat()
    except OSError:
        return None
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def _names(files: tuple[Path, ...]) -> str:
    return ", ".join(str(file) for file in files)
