"""Gateway API: its CRDs and Traefik as the implementation. Only with GATEWAY=1, for the build takes minutes."""

from pathlib import Path

from cluster import binaries
from cluster.addons import Addons
from cluster.layout import SOURCES
from cluster.ociarchive import Image
from cluster.progress import step, wait_until

TRAEFIK_IMAGE = "localhost/learnloop/traefik:v3.6.12"
CRD_MODULE = "sigs.k8s.io/gateway-api"
CRD_FOLDER = "config/crd/standard"
DEPLOYMENT = "/apis/apps/v1/namespaces/traefik/deployments/traefik"
READY_SECONDS = 60.0


def images() -> list[Image]:
    """Traefik, built from its pinned module."""
    program = binaries.ensure(binaries.GATEWAY, binaries.GATEWAY.programs)["traefik"]
    return [Image(TRAEFIK_IMAGE, {"traefik": program}, ["/traefik"], {})]


def ensure(extras: Addons) -> None:
    """Have the CRDs, Traefik and a Gateway named `traefik` in namespace `traefik`. Raises CommandFailed."""
    extras.apply("gateway-crds", _all_crds(extras))
    extras.apply("gateway", SOURCES / "manifests" / "gateway.yaml")
    if not extras.api.condition(DEPLOYMENT, "Available"):
        with step("Traefik"):
            wait_until("Traefik", lambda: extras.api.condition(DEPLOYMENT, "Available"), READY_SECONDS)


def _all_crds(extras: Addons) -> Path:
    """The standard channel in one file: applied in one go, remembered by one digest."""
    folder = binaries.module_folder(binaries.GATEWAY, CRD_MODULE) / CRD_FOLDER
    parts = [path.read_text() for path in sorted(folder.glob("*.yaml")) if path.name != "kustomization.yaml"]
    together = extras.state.config / "gateway-crds.yaml"
    together.write_text("\n---\n".join(parts))
    return together
