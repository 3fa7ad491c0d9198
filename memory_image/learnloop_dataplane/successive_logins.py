"""One login for each password that holds, so that a new one opens a store before the old one ends."""

from hashlib import sha256
from urllib.parse import quote, unquote, urlsplit

from learnloop_common.key_lines import KeyLines


def login_of(login: str, password: str) -> str:
    """The name of a second login beside `login`, for one password of several."""
    return f"{login}_{sha256(password.encode()).hexdigest()[:8]}"


def logins_of(login: str, passwords: KeyLines) -> dict[str, str]:
    """All logins with their passwords: `login` itself has the oldest, for who has no other yet knows that one."""
    return {login: passwords.values[-1], **{login_of(login, value): value for value in passwords.values}}


def newest_login(login: str, passwords: KeyLines) -> tuple[str, str]:
    """Who to be, and by which password. While there are several, each is of a login of its own."""
    password = passwords.values[0]
    return (login if len(passwords.values) == 1 else login_of(login, password)), password


def with_password(dsn: str, passwords: KeyLines) -> str:
    """The address with its login's newest password."""
    return with_login(dsn, *newest_login(unquote(urlsplit(dsn).username or ""), passwords))


def with_login(dsn: str, login: str, password: str) -> str:
    """The address with another login."""
    parts = urlsplit(dsn)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{quote(login, safe='')}:{quote(password, safe='')}@{host}").geturl()
