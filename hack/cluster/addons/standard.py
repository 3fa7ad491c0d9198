"""The parts of a cluster besides its control plane: a name server, a default StorageClass, the training operator."""

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cluster.addresses import BRIDGE_ADDRESS, NODE
from cluster.control_plane import kubeconfig
from cluster.control_plane.api_client import Api
from cluster.control_plane.pki import Identity, Pki
from cluster.node.containerd import PAUSE_IMAGE, Client
from cluster.node.oci_archive import Image, pack
from cluster.processes import Daemon
from cluster.state_folder import SOURCES, State
from go_programs import go_build
from toolkit import debian_packages
from toolkit.commands import run
from toolkit.progress import step

DNS = "coredns"
PROVISIONER = "provisioner"
PROGRAMS = (DNS, PROVISIONER)
IDENTITIES = (Identity(DNS, "learnloop-local-dns"), Identity(PROVISIONER, "learnloop-local-provisioner"))

# The init image of PyTorchJobs loops over `seq` in a shell and calls `nslookup`. BusyBox has all three, but its shell
# prefers its own nslookup, which ignores the search domains that a pod's names need; so the shell is another one.
BUSYBOX = ("busybox-static", "bin/busybox")
SHELL = ("bash-static", "bin/bash-static")
INIT_IMAGE = "localhost/learnloop/pytorch-init:local"
TRAINING_OPERATOR_IMAGE = "localhost/learnloop/training-operator:v1.9.4"
# Where the training operator looks for a template of the init container when no flag says otherwise.
INIT_TEMPLATE = "etc/config/initContainer.yaml"
_INIT_CONTAINER = SOURCES / "manifests" / "init-container.yaml"
TRAINING_OPERATOR_MODULE = "github.com/kubeflow/training-operator"
TRAINING_OPERATOR_DEPLOYMENT = "/apis/apps/v1/namespaces/kubeflow/deployments/training-operator"

COREFILE = """\
. {{
    bind {address}
    ready {address}:8181
    errors
    cache 5
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        ttl 5
    }}
}}
"""

# The manifests of the training operator stay as they are; this lays our image and one flag over them, and asks
# for its readiness each second: with the delay and period of the original, a start takes 20 s longer.
OVERLAY = """\
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [manifests/overlays/standalone]
patches:
- target: {{kind: Deployment, name: training-operator}}
  patch: |
    - op: replace
      path: /spec/template/spec/containers/0/image
      value: {image}
    - op: add
      path: /spec/template/spec/containers/0/args
      value: ["--pytorch-init-container-image={init_image}"]
    - op: replace
      path: /spec/template/spec/containers/0/readinessProbe/initialDelaySeconds
      value: 1
    - op: replace
      path: /spec/template/spec/containers/0/readinessProbe/periodSeconds
      value: 1
"""


def fetch() -> None:
    """Download what the images are made of besides our programs. Raises CommandFailed."""
    debian_packages.unpacked(*BUSYBOX)
    debian_packages.unpacked(*SHELL)


def images() -> list[Image]:
    """The images without which no pod and no pod of a PyTorchJob starts. None has more than a few files."""
    kube = go_build.ensure(go_build.KUBE, ["pause", "nslookup"])
    waiting = {
        "bin/sh": debian_packages.unpacked(*SHELL),
        "bin/busybox": debian_packages.unpacked(*BUSYBOX),
        "usr/local/bin/nslookup": kube["nslookup"],
    }
    return [
        Image(PAUSE_IMAGE, {"pause": kube["pause"]}, ["/pause"], {}),
        Image(INIT_IMAGE, waiting, ["/bin/sh"], {"bin/seq": "busybox", "bin/sleep": "busybox"}),
    ]


def training_operator_image() -> Image:
    """The program and the template of the init container of its jobs' pods."""
    program = go_build.ensure(go_build.TRAINING_OPERATOR, ["training-operator"])["training-operator"]
    return Image(TRAINING_OPERATOR_IMAGE, {"manager": program, INIT_TEMPLATE: _INIT_CONTAINER}, ["/manager"], {})


def load_images(client: Client, wanted: list[Image]) -> None:
    """Import those that containerd does not hold in this very version. Raises CommandFailed."""
    present = client.images()
    for image in wanted:
        archive = pack(image)
        if present.get(image.name) != archive.digest:
            with step(f"importing {image.name}"):
                client.load(archive)


@dataclass(frozen=True)
class Addons:
    """The add-ons of one cluster."""

    state: State
    pki: Pki
    programs: dict[str, Path]
    server: str
    api: Api
    kubectl: Path

    def daemons(self) -> list[Daemon]:
        """The add-ons that run as processes of this machine."""
        corefile = self.state.config / "Corefile"
        corefile.write_text(COREFILE.format(address=BRIDGE_ADDRESS, kubeconfig=self._kubeconfig(DNS)))
        volumes = self.state.root / "volumes"
        volumes.mkdir(exist_ok=True)
        config = self._kubeconfig(PROVISIONER)
        return [
            Daemon(DNS, [self.programs[DNS], "-conf", corefile], inputs=[corefile, self.pki.authority]),
            Daemon(
                PROVISIONER,
                [
                    self.programs[PROVISIONER],
                    f"--kubeconfig={config}",
                    f"--root={volumes}",
                    f"--node={NODE}",
                ],
                inputs=[config],
            ),
        ]

    def apply_base(self) -> None:
        """Permissions and the StorageClass. Raises CommandFailed."""
        self.apply("base", SOURCES / "manifests" / "base.yaml")

    def apply_training_kinds(self) -> None:
        """Its kinds alone: a watch on PyTorchJobs then need not wait for the program that is behind them."""
        rendered, digest = self._training_operator()
        if not self._applied("training-kinds", digest):
            documents = rendered().read_text().split("\n---\n")
            kinds = self.state.config / "training-kinds.yaml"
            kinds.write_text("\n---\n".join(text for text in documents if "\nkind: CustomResourceDefinition\n" in text))
            self._apply("training-kinds", kinds, digest)

    def apply_training_operator(self) -> None:
        """The training operator from its own manifests. Raises CommandFailed."""
        rendered, digest = self._training_operator()
        if not self._applied("training-operator", digest):
            self._apply("training-operator", rendered(), digest)

    def _training_operator(self) -> tuple[Callable[[], Path], str]:
        """How to render its manifests into a file, and a digest of all that they are rendered from."""
        folder = self.state.config / "training-operator"
        source = go_build.module_folder(go_build.TRAINING_OPERATOR, TRAINING_OPERATOR_MODULE)
        overlay = OVERLAY.format(image=TRAINING_OPERATOR_IMAGE, init_image=INIT_IMAGE)

        def render() -> Path:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            shutil.copytree(source / "manifests", folder / "manifests", copy_function=shutil.copyfile)
            (folder / "kustomization.yaml").write_text(overlay)
            rendered = self.state.config / "training-operator.yaml"
            rendered.write_text(run([self.kubectl, "kustomize", folder]))
            return rendered

        # The module's folder carries its version: with the overlay it says all that the rendered file can.
        return render, hashlib.sha256(f"{source}\0{overlay}".encode()).hexdigest()

    def training_operator_ready(self) -> bool:
        """Whether its Deployment is available."""
        return self.api.condition(TRAINING_OPERATOR_DEPLOYMENT, "Available")

    def apply(self, name: str, manifest: Path) -> None:
        """Apply a file once for each content. Raises CommandFailed."""
        digest = hashlib.sha256(manifest.read_bytes()).hexdigest()
        if not self._applied(name, digest):
            self._apply(name, manifest, digest)

    def _applied(self, name: str, digest: str) -> bool:
        """Remembered in the state folder: asking the API server about every object takes seconds."""
        note = self.state.config / f"applied-{name}"
        return note.exists() and note.read_text() == digest

    def _apply(self, name: str, manifest: Path, digest: str) -> None:
        with step(f"applying {name}"):
            run(
                [
                    self.kubectl,
                    "--kubeconfig",
                    self.state.kubeconfig,
                    "apply",
                    "--server-side",
                    "--force-conflicts",
                    "--field-manager=learnloop-local",
                    "-f",
                    manifest,
                ]
            )
        (self.state.config / f"applied-{name}").write_text(digest)

    def _kubeconfig(self, user: str) -> Path:
        return kubeconfig.write(self.state.config / f"{user}.kubeconfig", self.server, self.pki, user)
