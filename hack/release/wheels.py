"""The wheels: the contract, the SDK, and the kubectl plugin, each from its own pyproject.toml."""

import shutil
from pathlib import Path

from toolkit.commands import run
from toolkit.places import REPOSITORY, cache_root

PROJECTS = ("crds", "agent_sdk", "operator")


def uv() -> str:
    """The path of uv: the machine's own, or the one that hack/venv brought."""
    return shutil.which("uv") or str(cache_root() / "uv" / "bin" / "uv")


def build(folder: Path) -> list[Path]:
    """Builds every wheel into the folder; the same sources make the same bytes. Raises CommandFailed."""
    for project in PROJECTS:
        run([uv(), "build", "--quiet", "--wheel", "--out-dir", folder, REPOSITORY / project])
    (folder / ".gitignore").unlink(missing_ok=True)
    return sorted(folder.glob("*.whl"))
