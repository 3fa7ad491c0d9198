"""kubectl and helm for the user: the machine's own where they fit this cluster, ours otherwise."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from cluster.state_folder import State
from go_programs import go_build
from go_programs.go_build import KUBERNETES_VERSION
from toolkit.commands import CommandFailed, run

HELM_MAJOR = 3


def ensure(state: State) -> Path:
    """Put a `kubectl` into the state's bin folder and return its path.

    Raises CommandFailed when none fits and ours cannot be built.
    """
    return _provide(state, "kubectl", _kubectl_fits)


def ensure_helm(state: State) -> Path:
    """Put a `helm` into the state's bin folder and return its path.

    Raises CommandFailed when none fits and ours cannot be built.
    """
    return _provide(state, "helm", _helm_fits)


def _provide(state: State, name: str, fits: Callable[[Path], bool]) -> Path:
    link = state.bin / name
    if link.exists():
        return link
    path = shutil.which(name)
    program = Path(path) if path and fits(Path(path)) else go_build.ensure(go_build.KUBE, [name])[name]
    link.unlink(missing_ok=True)  # one that points to nothing
    link.symlink_to(program)
    return link


def _kubectl_fits(program: Path) -> bool:
    """kubectl supports one minor version of difference, either way."""
    try:
        answer = json.loads(run([program, "version", "--client", "--output", "json"]))
        minor = int(re.sub(r"\D", "", answer["clientVersion"]["minor"]))
    except (CommandFailed, KeyError, ValueError):
        return False
    return abs(minor - int(KUBERNETES_VERSION.split(".")[1])) <= 1


def _helm_fits(program: Path) -> bool:
    try:
        return run([program, "version", "--template", "{{.Version}}"]).startswith(f"v{HELM_MAJOR}.")
    except CommandFailed:
        return False
