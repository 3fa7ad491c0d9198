"""Running other programs with their output in view."""

import shutil
from pathlib import Path

from demo.narrator import StoryFailedError
from demo.settings import ROOT
from toolkit.commands import follow


def tool(name: str, folder: Path | None = None) -> str:
    """Path of a program: in `folder` if it is there, else on PATH.

    Raises:
        StoryFailedError: it is nowhere.
    """
    if folder and (folder / name).exists():
        return str(folder / name)
    path = shutil.which(name)
    if not path:
        raise StoryFailedError(f"{name} is not on PATH; install it and run this again")
    return path


def run_shown(command: list[str]) -> str:
    """Runs a command from the repository's root, shows what it prints as it prints it, and returns that.

    Raises CommandFailed when it exits with another status than 0.
    """
    return follow(command, cwd=ROOT, on_line=lambda line: print(f"        {line}", flush=True))
