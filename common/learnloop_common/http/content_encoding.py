"""Compressed bodies: no server of ours takes them, and says so by 415 before it reads one (RFC 9110, section 8.4)."""

from collections.abc import Iterable

ADVICE = "send the body without Content-Encoding"


def encoding_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The Content-Encoding that a request's headers name; "" where the body is as it is."""
    named = next((value for name, value in headers if name.lower() == b"content-encoding"), b"")
    encoding = named.decode("latin-1").strip()[:40]
    return "" if encoding.lower() in ("", "identity") else encoding
