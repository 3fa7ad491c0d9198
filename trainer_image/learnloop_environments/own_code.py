"""The user's own environment, from a directory of Python files: a ConfigMap, as the ranks see it mounted."""

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path

from learnloop_api.names import ENV_ENVIRONMENT_DIRECTORY


def use(environ: Mapping[str, str]) -> None:
    """Make the directory's modules importable, after everything else: none of them takes the place of another."""
    directory = environ.get(ENV_ENVIRONMENT_DIRECTORY)
    if directory and directory not in sys.path:
        sys.path.append(directory)


def fingerprint(environ: Mapping[str, str]) -> str | None:
    """SHA-256 over names and contents of the directory's files; None without a directory."""
    directory = environ.get(ENV_ENVIRONMENT_DIRECTORY)
    if not directory:
        return None
    digest = hashlib.sha256()
    for file in sorted(item for item in Path(directory).iterdir() if item.is_file()):
        body = file.read_bytes()
        digest.update(f"{file.name}\0{len(body)}\0".encode() + body)
    return digest.hexdigest()
