"""Archives whose bytes depend on their files alone, and the script that pushes them."""

import gzip
import io
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from cluster.node.oci_archive import Archive, write

PUSH = """#!/bin/sh
# Pushes the archives next to it; no digest changes. usage: push REGISTRY[/FOLDER] [OPTION OF SKOPEO…]
set -eu
registry=${1:?usage: push REGISTRY[/FOLDER] [OPTION OF SKOPEO…]}
shift
cd "$(dirname "$0")"
while read -r archive name; do
    echo "$registry/$name"
    skopeo copy --all --quiet --preserve-digests "$@" "oci-archive:$archive" "docker://$registry/$name" </dev/null
done <<NAMES
"""


def save(archive: Archive, path: Path) -> None:
    """Writes an OCI archive."""
    with path.open("wb") as stream:
        write(archive, stream)


def write_push(folder: Path, names: Mapping[str, str]) -> None:
    """Writes the script: archive → its name in any registry."""
    lines = "".join(f"{archive} {name}\n" for archive, name in names.items())
    (folder / "push").write_text(f"{PUSH}{lines}NAMES\n")
    (folder / "push").chmod(0o755)


def packed(files: Iterable[tuple[str, bytes, int]]) -> bytes:
    """A tar.gz of these paths, contents and modes, in this order."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as squeezed,
        tarfile.open(fileobj=squeezed, mode="w") as archive,
    ):
        for path, content, mode in files:
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
