"""Subjects carry the namespace: rights are given by subject, so the token is to be believed and the body is not."""

import re

UNKNOWN = "-"
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class Refused(Exception):
    """A message that can never be stored, and why."""

    def __init__(self, namespace: str, reason: str) -> None:
        super().__init__(reason)
        self.namespace = namespace
        self.reason = reason[:1024]


def split_subject(subject: str, prefix: str) -> tuple[str, str]:
    """`<prefix>.<namespace>.<name>` → (namespace, name); a name may contain dots, a namespace may not.

    Raises:
        Refused: the subject does not look like that.
    """
    namespace, _, name = subject.removeprefix(prefix).removeprefix(".").partition(".")
    if not subject.startswith(prefix) or not _NAMESPACE.fullmatch(namespace) or not _NAME.fullmatch(name):
        raise Refused(
            namespace if _NAMESPACE.fullmatch(namespace) else UNKNOWN,
            f"subject {subject!r} is not {prefix}.<namespace>.<name>; publish there",
        )
    return namespace, name
