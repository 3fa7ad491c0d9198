"""A container image of a few files, written as an OCI archive without any image tool.

The same files give the same bytes, so an image's digest tells whether a machine already has it.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

OCI = "application/vnd.oci.image"


@dataclass(frozen=True)
class Image:
    """A named image: where its files come from, its symbolic links and the command it runs."""

    name: str
    files: Mapping[str, Path]
    command: Sequence[str]
    links: Mapping[str, str]


@dataclass(frozen=True)
class Archive:
    """An image's manifest, and those of its blobs that the reader does not have yet: digest → content or file."""

    name: str
    manifest: bytes
    blobs: Mapping[str, bytes | Path]

    @property
    def digest(self) -> str:
        """The name under which containerd lists the image."""
        return _digest(self.manifest)


def pack(image: Image) -> Archive:
    """Make the archive of an image of one layer."""
    layer = _layer(image)
    config = encoded(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": list(image.command), "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    )
    manifest = encoded(
        {
            "schemaVersion": 2,
            "mediaType": f"{OCI}.manifest.v1+json",
            "config": described(f"{OCI}.config.v1+json", config),
            "layers": [described(f"{OCI}.layer.v1.tar", layer)],
        }
    )
    return Archive(image.name, manifest, {_digest(blob): blob for blob in (config, layer)})


def index(name: str, parts: Mapping[str, Archive]) -> Archive:
    """One name for images of several architectures, as linux' of which each is given."""
    blobs = {digest: blob for part in parts.values() for digest, blob in part.blobs.items()}
    manifests = []
    for architecture, part in parts.items():
        entry = described(f"{OCI}.manifest.v1+json", part.manifest)
        manifests.append(entry | {"platform": {"architecture": architecture, "os": "linux"}})
        blobs[part.digest] = part.manifest
    listed = {"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "manifests": manifests}
    return Archive(name, encoded(listed), blobs)


def write(archive: Archive, stream: IO[bytes]) -> None:
    """Write an OCI archive piece by piece: an image may be larger than is good to hold in memory."""
    kind = json.loads(archive.manifest).get("mediaType", f"{OCI}.manifest.v1+json")
    entry = described(kind, archive.manifest)
    entry["annotations"] = {"io.containerd.image.name": archive.name}
    index = encoded({"schemaVersion": 2, "manifests": [entry]})
    with tarfile.open(fileobj=stream, mode="w|") as output:
        _add(output, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(output, "index.json", index)
        _add(output, _place(archive.digest), archive.manifest)
        for digest, blob in archive.blobs.items():
            if isinstance(blob, Path):
                with blob.open("rb") as content:
                    _add_stream(output, _place(digest), content, blob.stat().st_size)
            else:
                _add(output, _place(digest), blob)


def _place(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _layer(image: Image) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        folders = {str(parent) for path in (*image.files, *image.links) for parent in Path(path).parents}
        for folder in sorted((folders | {"tmp"}) - {"."}):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            archive.addfile(entry)
        for path, source in sorted(image.files.items()):
            _add(archive, path, source.read_bytes(), 0o755)
        for path, target in sorted(image.links.items()):
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, path: str, content: bytes, mode: int = 0o644) -> None:
    _add_stream(archive, path, io.BytesIO(content), len(content), mode)


def _add_stream(archive: tarfile.TarFile, path: str, content: IO[bytes], size: int, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = size, mode
    archive.addfile(entry, content)


def described(media_type: str, content: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def encoded(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
