"""Folders on this machine."""

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def cache_root() -> Path:
    """The folder for everything that outlives a cluster: programs, images, Go's own toolchain."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "learnloop"
