"""Documents and data that others wrote: from their repositories at a commit, by SHA-256, once for each machine."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Documents:
    """Files of a repository at one commit.

    Attributes:
        files: path → SHA-256.
    """

    repository: str
    commit: str
    files: Mapping[str, str]

    @property
    def version(self) -> str:
        """The commit, as it is called in tables."""
        return self.commit[:12]

    def folder(self) -> Path:
        """The folder with these files.

        Raises:
            subprocess.CalledProcessError: git cannot fetch the commit; its own words are on stderr.
            ValueError: a file is another one.
        """
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "learnloop" / "judges"
        folder = cache / f"{self.repository.replace('/', '+')}-{self.version}"
        if not folder.exists():
            new = folder.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir(parents=True)
            address = f"https://github.com/{self.repository}"
            for words in (
                ["init", "--quiet"],
                ["fetch", "--quiet", "--depth=1", "--filter=blob:none", address, self.commit],
                ["checkout", "--quiet", "FETCH_HEAD", "--", *self.files],
            ):
                subprocess.run(["git", *words], cwd=new, check=True, timeout=600)
            shutil.rmtree(new / ".git")
            new.rename(folder)
        for path, digest in self.files.items():
            if hashlib.sha256((folder / path).read_bytes()).hexdigest() != digest:
                raise ValueError(f"{folder / path} does not have the SHA-256 {digest}: remove the folder")
        return folder
