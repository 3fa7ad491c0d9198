"""The images there are, and what each is made of."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from images import emulation
from toolkit.errors import Refusal
from toolkit.places import REPOSITORY

HERE = Path(__file__).resolve().parent
PREFIX = "localhost/learnloop"
COPY = re.compile(r"^COPY\s+(?P<what>.+)$", re.MULTILINE)
NOT_CONTENT = {"__pycache__"}


@dataclass(frozen=True)
class Definition:
    """One image: its tag, its Dockerfile, the folder it may copy from, and its build arguments."""

    name: str
    tag: str
    dockerfile: Path
    context: Path
    arguments: Mapping[str, str] = field(default_factory=dict)
    by_name: bool = False
    """It is built where somebody names it, and left out where all are."""
    architecture: str = field(default_factory=emulation.own)

    @property
    def reference(self) -> str:
        return f"{PREFIX}/{self.name}:{self.tag}{emulation.suffix(self.architecture)}"

    def digest(self, base: str) -> str:
        """Changes when anything the image is made of changes.

        Raises Refusal naming what the Dockerfile copies and does not exist.
        """
        digest = hashlib.sha256(repr((base, sorted(self.arguments.items()))).encode())
        digest.update(self.dockerfile.read_bytes())
        for path in self._copied():
            digest.update(f"\0{path.relative_to(self.context)}\0{path.stat().st_mode:o}\0".encode() + path.read_bytes())
        return digest.hexdigest()[:16]

    def _copied(self) -> Iterator[Path]:
        for match in COPY.finditer(self.dockerfile.read_text()):
            *sources, _ = (word for word in match["what"].split() if not word.startswith("--"))
            for source in sources:
                yield from _files(self.context / source, self.dockerfile)


def _files(path: Path, wanted_by: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    elif path.is_dir():
        inside = (entry for entry in sorted(path.rglob("*")) if entry.is_file())
        yield from (entry for entry in inside if not NOT_CONTENT.intersection(entry.parts))
    else:
        copied, dockerfile = path.relative_to(REPOSITORY), wanted_by.relative_to(REPOSITORY)
        raise Refusal(f"{dockerfile} copies {copied}, which does not exist.")


def _product(name: str, folder: str, **arguments: str) -> Definition:
    return Definition(name, "dev", REPOSITORY / folder / "Dockerfile", REPOSITORY, arguments)


def _third_party(name: str, tag: str, *, by_name: bool = False) -> Definition:
    return Definition(name, tag, HERE / name / "Dockerfile", HERE / name, by_name=by_name)


DEFINITIONS: Mapping[str, Definition] = {
    definition.name: definition
    for definition in (
        _product("operator", "operator"),
        _product("trainer", "trainer_image", ACCELERATOR="cpu"),
        _product("serving", "serving_image"),
        _product("memory", "memory_image"),
        _third_party("postgres", "17"),
        Definition("nats", "2.15.1", HERE / "nats/Dockerfile", REPOSITORY),
        _third_party("prometheus", "2.53"),
        _third_party("llama-cpp", "0.7.0", by_name=True),
        # 6 GB, and no part of the chart: a suite of gates names it.
        Definition("garak", "0.17.1", REPOSITORY / "serving_image/garak/Dockerfile", REPOSITORY, by_name=True),
    )
}


def choose(names: list[str]) -> list[Definition]:
    """The named definitions, or all that the chart installs. Raises Refusal naming an unknown one."""
    for name in names:
        if name not in DEFINITIONS:
            raise Refusal(f"no image is called {name}; there are {', '.join(DEFINITIONS)}.")
    installed = [name for name, definition in DEFINITIONS.items() if not definition.by_name]
    return [DEFINITIONS[name] for name in names or installed]
