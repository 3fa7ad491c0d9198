"""Running other programs with their output in view."""

import shutil
import subprocess
from pathlib import Path

from demo.narrator import StoryFailedError
from demo.settings import ROOT


def tool(name: str, folder: Path | None = None) -> str:
    """Path of a program: in `folder` if it is there, else on PATH.

    Raises:
        StoryFailedError: it is nowhere.
    """
    if folder and (folder / name).exists():
        return str(folder / name)
    found = shutil.which(name)
    if not found:
        raise StoryFailedError(f"{name} is not on PATH; install it and run this again")
    return found


def run_shown(command: list[str]) -> str:
    """Runs a command from the repository's root, shows what it prints as it prints it, and returns that.

    Raises:
        StoryFailedError: it exited with another status than 0.
    """
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        print(f"        {line}", end="", flush=True)
        lines.append(line)
    if process.wait():
        raise StoryFailedError(f"`{' '.join(command[:4])} …` exited with {process.returncode}")
    return "".join(lines)
