"""A Helm 3: the one on PATH, or the local cluster's own."""

import shutil
from pathlib import Path

from go_programs import go_build


def at_hand() -> Path | None:
    """Its path, if it is on PATH or was built before."""
    if path := shutil.which("helm"):
        return Path(path)
    built = go_build.KUBE.cache() / "helm"
    return built if built.exists() else None


def ensure() -> Path:
    """Its path, built now where there is none. Raises Refusal without a Go toolchain, CommandFailed."""
    return at_hand() or go_build.ensure(go_build.KUBE, ["helm"])["helm"]
