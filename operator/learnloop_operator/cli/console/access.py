"""Access to the console: only the one browser with its token, from the console's own pages.

A server on loopback can be reached by every page that the browser shows and by every program of the machine. So:

- a token in the printed address is exchanged once for a cookie that no script can read (HttpOnly, SameSite=Strict);
- Host must be the console's own address, or a foreign name that resolves to 127.0.0.1 would be let in (DNS rebinding);
- Origin and Sec-Fetch-Site must not name another page;
- browsers send cookies to every port of a host, so an order takes a second secret, which never travels in a cookie.
"""

import secrets
import threading
from collections.abc import Mapping
from hmac import compare_digest
from http.cookies import CookieError, SimpleCookie

from learnloop_operator.cli.objects import CommandError

KEY_HEADER = "X-Learnloop-Key"
OWN_SITES = ("same-origin", "none")


class ForeignRequestError(CommandError):
    """The request is not from the console's own browser; it is answered with 403."""


class Gate:
    """The secrets of one console, all made when it starts and nowhere written."""

    def __init__(self, port: int) -> None:
        self.hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
        self.cookie_name = f"learnloop-console-{port}"
        self.token = secrets.token_urlsafe(32)
        self._cookie, self._key = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._used, self._lock = False, threading.Lock()

    @property
    def address(self) -> str:
        return f"http://{self.hosts[0]}/?token={self.token}"

    def exchange(self, headers: Mapping[str, str], token: str) -> tuple[str, str]:
        """The cookie and the key of orders for the token.

        Raises:
            ForeignRequestError: foreign Host, or the token is wrong or spent.
        """
        self._same_host(headers)
        with self._lock:
            if self._used or not compare_digest(token.encode(), self.token.encode()):
                raise ForeignRequestError("this address works once: start `kubectl learnloop console` again")
            self._used = True
        return f"{self.cookie_name}={self._cookie}; Path=/; HttpOnly; SameSite=Strict", self._key

    def check(self, headers: Mapping[str, str]) -> None:
        """Let a read pass.

        Raises:
            ForeignRequestError: foreign Host, Origin or page, or no cookie.
        """
        self._same_host(headers)
        origin = headers.get("Origin")
        if origin is not None and origin != f"http://{headers['Host']}":
            raise ForeignRequestError(f"Origin {origin[:200]!r} is not the console's own")
        site = headers.get("Sec-Fetch-Site")
        if site is not None and site not in OWN_SITES:
            raise ForeignRequestError("another page asks; open the address that the command printed")
        if not compare_digest(self._sent(headers).encode(), self._cookie.encode()):
            raise ForeignRequestError("no session: open the address that `kubectl learnloop console` printed")

    def check_order(self, headers: Mapping[str, str]) -> None:
        """Let an order pass: a read's conditions, an Origin, and the key.

        Raises:
            ForeignRequestError: one of them is missing.
        """
        self.check(headers)
        if headers.get("Origin") is None:
            raise ForeignRequestError("an order without an Origin is not from the console's pages")
        if not compare_digest(headers.get(KEY_HEADER, "").encode(), self._key.encode()):
            raise ForeignRequestError("this tab has no key for orders: start `kubectl learnloop console` again")

    def _same_host(self, headers: Mapping[str, str]) -> None:
        if headers.get("host") not in self.hosts:
            raise ForeignRequestError(f"Host {headers.get('Host', '')[:200]!r} is not {self.hosts[0]}")

    def _sent(self, headers: Mapping[str, str]) -> str:
        try:
            sent = SimpleCookie(headers.get("Cookie", "")).get(self.cookie_name)
        except CookieError:
            return ""
        return sent.value if sent is not None else ""
