"""A virtual environment with a wheel of this repository and what it requires."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from release import wheels
from toolkit.places import REPOSITORY

IMPORT_ALL = """
import importlib, pkgutil, sys
for package in sys.argv[1:]:
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        importlib.import_module(module.name)
"""


@dataclass(frozen=True)
class CleanVenv:
    folder: Path

    @classmethod
    def of(cls, requirement: str, folder: Path) -> "CleanVenv":
        """Builds the wheels and installs this one, e.g. `kubectl-learnloop[console]`."""
        made, environment = folder / "wheels", cls(folder / "venv")
        wheels.build(made)
        uv, locked = wheels.uv(), REPOSITORY / "requirements" / "dev.txt"
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, environment.folder], check=True)
        install = [uv, "pip", "install", "--quiet", "--python", environment.program("python")]
        subprocess.run([*install, "--find-links", made, "--constraint", locked, requirement], check=True)
        return environment

    def program(self, name: str) -> str:
        return str(self.folder / "bin" / name)

    def packages(self) -> set[str]:
        """The distributions that it holds."""
        listed = [wheels.uv(), "pip", "list", "--quiet", "--format", "json", "--python", self.program("python")]
        done = subprocess.run(listed, capture_output=True, text=True, check=True)
        return {package["name"] for package in json.loads(done.stdout)}

    def run(self, program: str, *arguments: str, **environment: str) -> str:
        """The output of a program of the environment, far from this checkout. Fails where the program does."""
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("LEARNLOOP_", "PYTHON"))}
        command = [self.program(program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, env=clean | environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def import_all(self, *packages: str) -> None:
        """Import each module that these packages ship."""
        self.run("python", "-c", IMPORT_ALL, *packages)
