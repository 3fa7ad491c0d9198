"""Programs of a machine that is not there: shell scripts that come first on the PATH and note how they were called."""

import os
from pathlib import Path


class Fakes:
    """A folder of such programs, and the log of their calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "bin"
        self.folder.mkdir(parents=True)
        self._log = folder / "calls"

    def program(self, name: str, script: str = "") -> Path:
        """Make one; the script is what it does after it has noted its name and arguments."""
        path = self.folder / name
        path.write_text(f'#!/bin/bash\necho "{name} $*" >>"{self._log}"\n{script}\n')
        path.chmod(0o755)
        return path

    def calls(self) -> list[str]:
        """Every call so far: the program's name and its arguments."""
        return self._log.read_text().splitlines() if self._log.exists() else []

    def environment(self, **more: str) -> dict[str, str]:
        """This process's environment with the fakes first on the PATH."""
        return {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}", **more}
