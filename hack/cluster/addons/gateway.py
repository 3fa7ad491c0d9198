"""Gateway API: its CRDs, with Contour and Envoy behind it. Only with GATEWAY=1, for the build takes minutes."""

from pathlib import Path

from cluster.addons import envoy
from cluster.addons.standard import Addons
from cluster.node.oci_archive import Image
from cluster.state_folder import SOURCES
from go_programs import go_build
from toolkit.progress import step, wait_until

CONTOUR_IMAGE = "localhost/learnloop/contour:v1.33.8"
CONTOUR_MODULE = "github.com/projectcontour/contour"
CONTOUR_CRDS = ("httpproxies.projectcontour.io", "tlscertificatedelegations.projectcontour.io")
"""Contour watches these two whether anybody uses them or not."""
CRD_MODULE = "sigs.k8s.io/gateway-api"
CRD_FOLDER = "config/crd/standard"
DEPLOYMENT = "/apis/apps/v1/namespaces/gateway/deployments/gateway"
READY_SECONDS = 60.0


def images() -> list[Image]:
    """Contour, built from its pinned module, and Envoy."""
    program = go_build.ensure(go_build.GATEWAY, go_build.GATEWAY.programs)["contour"]
    return [Image(CONTOUR_IMAGE, {"usr/local/bin/contour": program}, ["contour"], {}), envoy.image()]


def ensure(extras: Addons) -> None:
    """Have the CRDs, Contour with Envoy, and a Gateway named `gateway` in namespace `gateway`. Raises CommandFailed."""
    extras.apply("gateway-crds", _all_crds(extras))
    extras.apply("gateway", SOURCES / "manifests" / "gateway.yaml")
    if not extras.api.condition(DEPLOYMENT, "Available"):
        with step("Contour and Envoy"):
            wait_until("the gateway", lambda: extras.api.condition(DEPLOYMENT, "Available"), READY_SECONDS)


def _all_crds(extras: Addons) -> Path:
    """The Gateway API's standard channel and Contour's own in one file: applied in one go, remembered by one digest."""
    folder = go_build.module_folder(go_build.GATEWAY, CRD_MODULE) / CRD_FOLDER
    parts = [path.read_text() for path in sorted(folder.glob("*.yaml")) if path.name != "kustomization.yaml"]
    own = go_build.module_folder(go_build.GATEWAY, CONTOUR_MODULE) / "examples" / "contour" / "01-crds.yaml"
    parts += [
        part for part in own.read_text().split("\n---\n") if any(f"name: {name}\n" in part for name in CONTOUR_CRDS)
    ]
    together = extras.state.config / "gateway-crds.yaml"
    together.write_text("\n---\n".join(parts))
    return together
