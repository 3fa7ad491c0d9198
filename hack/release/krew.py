"""The plugin for Krew: an archive with its wheels and a program that installs them once, and the manifest."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import yaml

from release.archives import packed
from toolkit.places import REPOSITORY

PROGRAM = """#!/bin/sh
# kubectl learnloop. Its first start installs the wheels here, and what they require, into the user's cache.
set -eu
here=$(dirname "$(readlink -f "$0")")
venv=${XDG_CACHE_HOME:-$HOME/.cache}/learnloop/plugin-VERSION
if [ ! -e "$venv/ready" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet "$here"/learnloop_api-*.whl "$(echo "$here"/kubectl_learnloop-*.whl)[console]" >&2
    touch "$venv/ready"
fi
exec "$venv/bin/kubectl-learnloop" "$@"
"""


def pack(folder: Path, wheels: Sequence[Path], version: str, url: str) -> None:
    """Writes both; the manifest leads to the archive below the URL."""
    program = PROGRAM.replace("VERSION", version).encode()
    files = [("kubectl-learnloop", program, 0o755), ("LICENSE", (REPOSITORY / "LICENSE").read_bytes(), 0o644)]
    files += [(path.name, path.read_bytes(), 0o644) for path in wheels if "sdk" not in path.name]
    archive = folder / f"kubectl-learnloop-{version}.tar.gz"
    archive.write_bytes(packed(files))
    download = {"uri": f"{url}/{archive.name}", "sha256": hashlib.sha256(archive.read_bytes()).hexdigest()}
    systems = [{"selector": {"matchLabels": {"os": name}}} for name in ("linux", "darwin")]
    manifest = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "learnloop"},
        "spec": {
            "version": f"v{version}",
            "homepage": url,
            "shortDescription": "Look at learning agents, and steer their rollouts",
            "caveats": "Needs Python 3.11 or newer with its venv module, and the package index at its first start.",
            "platforms": [system | download | {"bin": "kubectl-learnloop"} for system in systems],
        },
    }
    (folder / "learnloop.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))
