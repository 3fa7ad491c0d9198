"""Signatures as cosign writes them: of a file, and of an image as an image of its own next to it."""

import base64
import json
from pathlib import Path

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from cluster.node.oci_archive import OCI, Archive, described, encoded
from toolkit.errors import Refusal

PAYLOAD = "application/vnd.dev.cosign.simplesigning.v1+json"
SIGNATURE = "dev.cosignproject.cosign/signature"


class Signer:
    """Signs with an ECDSA key. The nonce follows RFC 6979, so the same file has the same signature."""

    def __init__(self, key: Path) -> None:
        """Raises Refusal for a key of another kind."""
        loaded = serialization.load_pem_private_key(key.read_bytes(), None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise Refusal(f"{key}: make an ECDSA key: openssl ecparam -name prime256v1 -genkey -noout")
        self._key = loaded

    def sign(self, content: bytes) -> str:
        """As `cosign sign-blob` does: base64 of the signature over SHA-256."""
        return base64.b64encode(self._key.sign(content, ec.ECDSA(hashes.SHA256(), deterministic_signing=True))).decode()

    def image(self, repository: str, digest: str) -> Archive:
        """The image that `cosign sign` pushes. No registry is in it: `cosign verify` compares the digest."""
        critical = {
            "identity": {"docker-reference": repository},
            "image": {"docker-manifest-digest": digest},
            "type": "cosign container image signature",
        }
        payload = json.dumps({"critical": critical, "optional": None}, separators=(",", ":")).encode()
        layer = described(PAYLOAD, payload)
        rootfs = {"type": "layers", "diff_ids": [layer["digest"]]}
        config = encoded({"architecture": "", "os": "", "config": {}, "rootfs": rootfs})
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{OCI}.manifest.v1+json",
            "config": described(f"{OCI}.config.v1+json", config),
            "layers": [layer | {"annotations": {SIGNATURE: self.sign(payload)}}],
        }
        blobs = {str(described("", content)["digest"]): content for content in (config, payload)}
        return Archive(repository, encoded(manifest), blobs)


def tag(digest: str) -> str:
    """Under which cosign looks for the signature of an image."""
    return f"{digest.replace(':', '-')}.sig"
