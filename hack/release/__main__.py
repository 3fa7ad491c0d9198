"""`make release`: what a release needs, in dist/release. Nothing is published from here."""

import argparse
import base64
import hashlib
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from cluster.locking import exclusive
from cluster.node.oci_archive import write
from cluster.state_folder import State
from images import buildah, supply_chain
from images.build import build
from images.definitions import choose
from release import chart, krew, wheels
from toolkit.errors import Refusal
from toolkit.main_program import run_as_program
from toolkit.places import REPOSITORY
from toolkit.progress import step


def main() -> int:
    """Write the files; returns the exit status."""
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("--folder", type=Path, default=REPOSITORY / "dist" / "release")
    parser.add_argument("--url", default="https://example.com/learnloop", help="where the files will lie, for Krew")
    parser.add_argument(
        "--digest", action="append", default=[], help="NAME=sha256:… of a published image, again for each"
    )
    parser.add_argument("--images", action="store_true", help="build the chart's own images into archives, too; root")
    parser.add_argument("--key", type=Path, help="PEM of an ECDSA key that signs SHA256SUMS")
    options = parser.parse_args()
    folder: Path = options.folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    digests = dict(item.partition("=")[::2] for item in options.digest)
    if options.images:
        digests |= _images(folder)
    chart.pack(folder, digests)
    krew.pack(folder, wheels.build(folder), chart.ABOUT["version"], options.url.rstrip("/"))
    sums = "".join(f"{_sum(path)}  {path.name}\n" for path in sorted(folder.iterdir()))
    (folder / "SHA256SUMS").write_text(sums)
    if options.key:
        (folder / "SHA256SUMS.sig").write_text(_signature(options.key, sums.encode()))
    print(sums, end="")
    return 0


def _images(folder: Path) -> dict[str, str]:
    """Digest by name, of this machine's architecture. They hold its certificate authorities, as hack/images says."""
    digests, definitions = {}, choose(list(chart.IMAGES))
    with exclusive(State(buildah.folder())):
        build(definitions, None)
        for definition in definitions:
            with step(f"writing {definition.name}.oci.tar") as current:
                archive = buildah.export(definition.reference, current)
                with (folder / f"{definition.name}.oci.tar").open("wb") as stream:
                    write(archive, stream)
            digests[definition.name] = archive.digest
            for document in supply_chain.FOLDER.glob(f"{definition.name}.*.json"):
                shutil.copy(document, folder)
    return digests


def _sum(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _signature(key: Path, content: bytes) -> str:
    """As `cosign sign-blob` writes it: base64 of an ECDSA signature over SHA-256."""
    signer = serialization.load_pem_private_key(key.read_bytes(), None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise Refusal(f"{key}: make an ECDSA key: openssl ecparam -name prime256v1 -genkey -noout")
    return base64.b64encode(signer.sign(content, ec.ECDSA(hashes.SHA256()))).decode()


if __name__ == "__main__":
    sys.exit(run_as_program("make release", main))
