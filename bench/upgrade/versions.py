"""The version before this one: its code out of Git, and the Python that has its libraries."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
FALLBACK = "8422bbc47c33a43f89ca96e3b3009f0359f1711a"
"""Stands for the last tag while there is none: schema 0028, before partitions, sealed steps and the ordinary login."""
PACKAGES = "learnloop_*"
LOCKS = ("memory.txt", "serving.txt")
DRAINS = "crds/learnloop_api/http_server/draining_server.py"
ORDINARY_LOGIN = "memory_image/learnloop_dataplane/postgres/logins/ordinary_login.py"


class NoSuchVersion(Exception):
    """This clone does not have it."""


@dataclass(frozen=True)
class Version:
    """Code and interpreter of one version.

    Attributes:
        name: its tag or commit; "now": this checkout.
        root: folder of its repository.
        python: an interpreter with its libraries.
    """

    name: str
    root: Path
    python: str

    def environment(self, **settings: str) -> dict[str, str]:
        """This process's, with the version's packages first, and `settings` alone of learnloop's own variables."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LEARNLOOP_")}
        folders = sorted({str(found.parent) for found in self.root.glob(f"*/{PACKAGES}")})
        named = {f"LEARNLOOP_{name}": value for name, value in settings.items()}
        return kept | {"PYTHONPATH": os.pathsep.join([*folders, str(self.root)])} | named

    @property
    def drains(self) -> bool:
        """Whether its data plane serves on for a while when it is told to end."""
        return (self.root / DRAINS).exists()

    @property
    def has_ordinary_login(self) -> bool:
        """Whether its chart makes a login that is no superuser, by `prepare`."""
        return (self.root / ORDINARY_LOGIN).exists()


def now() -> Version:
    """This checkout."""
    return Version("now", ROOT, sys.executable)


def before(folder: Path, commit: str = "") -> Version:
    """The last tag, or what stands for it, or `commit`; its code is written below `folder`.

    Raises:
        NoSuchVersion: this is no clone, or a shallow one.
    """
    name = commit or _last_tag() or FALLBACK
    if _git("cat-file", "-e", f"{name}^{{commit}}") is None:
        raise NoSuchVersion(f"this clone does not have {name}; fetch its history: git fetch --unshallow --tags")
    root = folder / "before"
    root.mkdir()
    with subprocess.Popen(["git", "-C", ROOT, "archive", name], stdout=subprocess.PIPE) as packed:
        subprocess.run(["tar", "-x", "-C", root], stdin=packed.stdout, check=True)
    python = sys.executable if _has_libraries(root) else _own_python(root, folder / "venv")
    return Version(name, root, python)


def _last_tag() -> str:
    """Of the commits behind the newest one: a release is rehearsed from the one before it."""
    return _git("describe", "--tags", "--abbrev=0", "HEAD^") or ""


def _git(*arguments: str) -> str | None:
    done = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def _has_libraries(root: Path) -> bool:
    """Whether this interpreter has what that version's images have, in the same versions."""
    for lock in LOCKS:
        for line in (root / "requirements" / lock).read_text().splitlines():
            if "==" not in line or line.startswith((" ", "#")):
                continue
            needed = Requirement(line.rstrip(" \\"))
            if needed.marker is not None and not needed.marker.evaluate():
                continue
            try:
                if not needed.specifier.contains(version(needed.name)):
                    return False
            except PackageNotFoundError:
                return False
    return True


def _own_python(root: Path, venv: Path) -> str:
    uv = shutil.which("uv")
    files = [argument for lock in LOCKS for argument in ("--requirement", str(root / "requirements" / lock))]
    if uv:
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, venv], check=True)
        installer = [uv, "pip", "install", "--quiet", "--python", str(venv / "bin" / "python")]
    else:
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        installer = [str(venv / "bin" / "pip"), "install", "--quiet"]
    subprocess.run([*installer, "--require-hashes", *files], check=True)
    return str(venv / "bin" / "python")
