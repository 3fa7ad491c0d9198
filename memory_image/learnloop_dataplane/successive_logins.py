"""One login for each password that holds, so that a new one opens the database before the old one ends."""

from hashlib import sha256
from urllib.parse import quote, unquote, urlsplit

from learnloop_api.key_lines import KeyLines


def login_of(login: str, password: str) -> str:
    """The name of a second login beside `login`, for one password of several."""
    return f"{login}_{sha256(password.encode()).hexdigest()[:8]}"


def with_password(dsn: str, passwords: KeyLines) -> str:
    """The address with its login's password. While there are several, each is of a login of its own, so that the new
    one opens the database before the old one ends."""
    parts = urlsplit(dsn)
    login, password = unquote(parts.username or ""), passwords.values[0]
    name = login if len(passwords.values) == 1 else login_of(login, password)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{quote(name, safe='')}:{quote(password, safe='')}@{host}").geturl()
