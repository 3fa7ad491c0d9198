"""A Git repository in a folder, which tools clone by its file URL."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

AUTHOR = ("-c", "user.name=platform team", "-c", "user.email=platform@example.com")


class GitRepository:
    """One branch, `main`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self._git("init", "--quiet", "--initial-branch=main")

    @property
    def url(self) -> str:
        """The source of clones."""
        return self.folder.as_uri()

    def copy(self, source: Path, path: str) -> None:
        """A folder of the project, to be committed at `path`."""
        shutil.copytree(source, self.folder / path, symlinks=True)

    def commit(self, message: str, files: Mapping[str, str] | None = None) -> str:
        """All that was changed, and these files with their text; the commit's SHA."""
        for path, text in (files or {}).items():
            target = self.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        self._git("add", "--all")
        self._git(*AUTHOR, "commit", "--quiet", "--message", message)
        return self._git("rev-parse", "HEAD").strip()

    def _git(self, *arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"git {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout
