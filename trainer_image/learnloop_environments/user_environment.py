"""The user's own environment, from a directory of Python files: a ConfigMap, as the ranks see it mounted."""

import functools
import hashlib
import inspect
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import version
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
    return digest(item for item in Path(directory).iterdir() if item.is_file()) if directory else None


def code(entry: object, directory: str | None) -> str:
    """SHA-256 of the code that an environment runs in this process.

    `entry`: its class or function; None for one that Gymnasium registers, whose code is Gymnasium's version. It
    covers the files of the directory, of the entry point and of its base classes, as they were at the first call:
    later changes on disk are not what runs.
    """
    return _code(entry, directory)


@functools.cache
def _code(entry: object, directory: str | None) -> str:
    files = {item for item in Path(directory).iterdir() if item.is_file()} if directory else set()
    kinds = inspect.getmro(entry) if inspect.isclass(entry) else (entry,)
    for kind in kinds if entry is not None else ():
        module = sys.modules.get(getattr(kind, "__module__", ""))
        source = getattr(module, "__file__", None)
        if source and module is not None and module.__name__.partition(".")[0] not in sys.stdlib_module_names:
            files.add(Path(source))
    library = "" if entry is not None else f"gymnasium {version('gymnasium')} "
    return library + digest(files)


def digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in sorted(files):
        body = file.read_bytes()
        digest.update(f"{file.name}\0{len(body)}\0".encode() + body)
    return digest.hexdigest()
