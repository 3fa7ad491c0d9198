"""The words of a memory: what the embedder and the lexical signal look at."""

import re
from collections.abc import Iterator
from typing import Any

MAX_TEXT = 8192
MAX_TERMS = 256
_WORD = re.compile(r"[^\W_]+")


def text_of(content: Any) -> str:
    """One text for a JSON value, at most 8,192 characters: its `text` when it has one, else every key and scalar."""
    if isinstance(content, str):
        return content[:MAX_TEXT]
    if isinstance(content, dict) and isinstance(content.get("text"), str):
        return str(content["text"])[:MAX_TEXT]
    parts: list[str] = []
    size = 0
    for part in _scalars(content):
        parts.append(part)
        size += len(part) + 1
        if size >= MAX_TEXT:
            break
    return " ".join(parts)[:MAX_TEXT]


def _scalars(value: Any) -> Iterator[str]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            for key in reversed(item):
                stack.extend((item[key], str(key)))
        elif isinstance(item, list):
            stack.extend(reversed(item))
        elif item is not None:
            yield str(item)


def words(text: str) -> list[str]:
    """Lower-case words of letters and digits, in order, each at most 64 characters."""
    return [word[:64] for word in _WORD.findall(text.lower())]


def terms(text: str) -> list[str]:
    """The distinct words, sorted, at most 256."""
    return sorted(set(words(text)))[:MAX_TERMS]
