"""The image builder: buildah, with a store of its own so that other images stay untouched."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster.node.oci_archive import Archive
from images import emulation
from toolkit.commands import follow, run, succeeds
from toolkit.places import cache_root
from toolkit.progress import Step

TOOLS = {"buildah": "buildah", "debootstrap": "debootstrap", "skopeo": "skopeo"}


def folder() -> Path:
    """Everything the builder keeps between runs."""
    return cache_root() / "images"


def _root() -> Path:
    return folder() / "store"


def _run_root() -> Path:
    return folder() / "run"


def command(*arguments: str | Path) -> list[str | Path]:
    """The command line of one buildah call.

    Isolation by chroot needs neither user namespaces nor a working runc, so it builds inside containers too.
    """
    return ["buildah", "--root", _root(), "--runroot", _run_root(), "--storage-driver", "overlay", *arguments]


def forget_interrupted() -> None:
    """Remove the containers, and unmount the file systems, of builds that were ended half-way."""
    for container in run(command("containers", "--quiet", "--all")).split():
        run(command("rm", container))


def identifier(reference: str) -> str | None:
    """The id of an image in the builder's store."""
    if not succeeds(command("inspect", "--type", "image", reference)):
        return None
    return run(command("inspect", "--type", "image", "--format", "{{.FromImageID}}", reference)).strip()


def build(
    reference: str, dockerfile: Path, context: Path, arguments: Mapping[str, str], architecture: str, step: Step
) -> None:
    """Build a Dockerfile, reusing the layers of earlier builds. Raises CommandFailed."""
    given = [part for name, value in arguments.items() for part in ("--build-arg", f"{name}={value}")]
    for name, value in emulation.variables(architecture).items():
        given += ["--env", f"{name}={value}", "--unsetenv", name]  # no part of the image
    options: Sequence[str | Path] = ["--isolation", "chroot", "--layers", "--arch", architecture, *given]
    named: Sequence[str | Path] = ["--format", "oci", "--file", dockerfile, "--tag", reference]
    building = ["nice", "-n", "10", *command("bud", *options, *named, context)]
    follow(building, step, env={**os.environ, "BUILDAH_ISOLATION": "chroot"})


def export(reference: str, step: Step) -> Archive:
    """Write the image's blobs to the export folder, leaving out those that lie there already.

    Raises CommandFailed.
    """
    layout = folder() / "export"
    layout.mkdir(parents=True, exist_ok=True)
    source = f"containers-storage:[overlay@{_root()}+{_run_root()}]{reference}"
    # skopeo, because buildah compresses what it pushes to a folder: 20 s for the trainer, each time, and then no
    # blob's name tells whether it is there already. Uncompressed, the second export of an image takes 0.03 s.
    options = ["--quiet", "--dest-oci-accept-uncompressed-layers"]
    follow(["skopeo", "copy", *options, source, f"oci:{layout}:{reference}"], step)
    index: dict[str, Any] = json.loads((layout / "index.json").read_text())
    chosen = next(entry for entry in index["manifests"] if _name(entry) == reference)
    manifest = _blob(layout, chosen["digest"]).read_bytes()
    _prune(layout, index)
    return Archive(reference, manifest, {digest: _blob(layout, digest) for digest in _references(manifest)})


def _name(entry: Mapping[str, Any]) -> str:
    return str(entry.get("annotations", {}).get("org.opencontainers.image.ref.name", ""))


def _blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / digest.replace(":", "/")


def _references(manifest: bytes) -> list[str]:
    parsed = json.loads(manifest)
    return [parsed["config"]["digest"], *(layer["digest"] for layer in parsed["layers"])]


def _prune(layout: Path, index: Mapping[str, Any]) -> None:
    """Delete blobs that no image in the folder refers to any more."""
    manifests = [entry["digest"] for entry in index["manifests"]]
    used = set(manifests)
    for digest in manifests:
        used.update(_references(_blob(layout, digest).read_bytes()))
    for path in (layout / "blobs" / "sha256").iterdir():
        if f"sha256:{path.name}" not in used:
            path.unlink()
