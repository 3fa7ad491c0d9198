"""The pages' files: part of the package, read once, nothing else can be named."""

from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file as it is sent."""

    content: bytes
    type: str
    tag: str


def static_files() -> dict[str, StaticFile]:
    """By path below the server's root."""
    found: dict[str, StaticFile] = {}
    for item in files("learnloop_operator.cli.console").joinpath("pages").iterdir():
        suffix = item.name[item.name.rfind(".") :]
        if item.is_file() and suffix in TYPES:
            content = item.read_bytes()
            found[f"/{item.name}"] = StaticFile(content, TYPES[suffix], f'"{sha256(content).hexdigest()[:16]}"')
    return found
