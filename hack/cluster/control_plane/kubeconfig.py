"""Writing kubeconfig files: one for the user, one for each component."""

import base64
from pathlib import Path

from cluster.addresses import CONTEXT
from cluster.control_plane.pki import Pki

TEMPLATE = """\
apiVersion: v1
kind: Config
current-context: {context}
clusters:
- name: {context}
  cluster:
    server: {server}
    certificate-authority-data: {authority}
users:
- name: {context}-{user}
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: {context}
  context:
    cluster: {context}
    user: {context}-{user}
"""


def write(path: Path, server: str, pki: Pki, user: str) -> Path:
    """Write a kubeconfig for the identity `user`, readable by its owner only."""
    text = TEMPLATE.format(
        context=CONTEXT,
        server=server,
        user=user,
        authority=_encoded(pki.authority),
        certificate=_encoded(pki.certificate(user)),
        key=_encoded(pki.key(user)),
    )
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    new.chmod(0o600)
    new.rename(path)
    return path


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
