"""`make release`: what a release needs, in dist/release. Nothing is published from here."""

import argparse
import hashlib
import shutil
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cluster.locking import exclusive
from cluster.node.oci_archive import Archive, index
from cluster.state_folder import State
from images import buildah, emulation, supply_chain
from images.build import build
from images.definitions import DEFINITIONS
from release import chart, krew, signatures, wheels
from release.archives import save, write_push
from release.version import agreed
from toolkit.main_program import run_as_program
from toolkit.places import REPOSITORY
from toolkit.progress import step


def main() -> int:
    """Write the files; returns the exit status."""
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("--folder", type=Path, default=REPOSITORY / "dist" / "release")
    parser.add_argument("--url", default="https://example.com/learnloop", help="where the files will lie, for Krew")
    parser.add_argument("--tag", default="", help="refuse to go on unless it is v and the version")
    parser.add_argument(
        "--digest", action="append", default=[], help="NAME=sha256:… of a published image, again for each"
    )
    parser.add_argument("--images", action="store_true", help="build the chart's own images into archives, too; root")
    parser.add_argument(
        "--architecture",
        action="append",
        choices=list(emulation.PROCESSORS),
        help="of the archives; again for each. By default this machine's own; others are emulated",
    )
    parser.add_argument("--key", type=Path, help="PEM of an ECDSA key that signs SHA256SUMS and each archive")
    options = parser.parse_args()
    version = agreed(options.tag)
    folder: Path = options.folder
    signer = signatures.Signer(options.key) if options.key else None
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    images = _images(folder, sorted(set(options.architecture or [emulation.own()]))) if options.images else {}
    digests = dict(item.partition("=")[::2] for item in options.digest)
    packed = chart.pack(folder, digests | {name: archive.digest for name, archive in images.items()})
    krew.pack(folder, wheels.build(folder), version, options.url.rstrip("/"))
    names = {}
    for name, archive in [*images.items(), (f"{chart.ABOUT['name']}-{version}", packed)]:
        names[f"{name}.oci.tar"] = f"{archive.name}:{version}"
        if signer:
            save(signer.image(archive.name, archive.digest), folder / f"{name}.sig.oci.tar")
            names[f"{name}.sig.oci.tar"] = f"{archive.name}:{signatures.tag(archive.digest)}"
    write_push(folder, names)
    (folder / "images-of-others.txt").write_text("".join(f"{image}\n" for image in chart.others()))
    sums = "".join(f"{_sum(path)}  {path.name}\n" for path in sorted(folder.iterdir()))
    (folder / "SHA256SUMS").write_text(sums)
    if signer:
        (folder / "SHA256SUMS.sig").write_text(signer.sign(sums.encode()))
    print(sums, end="")
    return 0


def _images(folder: Path, architectures: list[str]) -> dict[str, Archive]:
    """Archives of these architectures. They hold this machine's certificate authorities, as hack/images says."""
    archives: dict[str, Archive] = {}
    with exclusive(State(buildah.folder())):
        for one in architectures:
            build([replace(DEFINITIONS[name], architecture=one) for name in chart.IMAGES], None)
        for name in chart.IMAGES:
            with step(f"writing {name}.oci.tar ({', '.join(architectures)})") as current:
                images = {one: replace(DEFINITIONS[name], architecture=one) for one in architectures}
                parts = {one: buildah.export(image.reference, current) for one, image in images.items()}
                archives[name] = index(f"learnloop/{name}", parts)
                save(archives[name], folder / f"{name}.oci.tar")
            for one in architectures:
                for document in supply_chain.FOLDER.glob(f"{name}-{one}.*.json"):
                    shutil.copy(document, folder)
    return archives


def _sum(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(run_as_program("make release", main))
