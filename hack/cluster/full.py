"""The full cluster: every step looks first, and does only what is not so yet."""

from dataclasses import dataclass
from pathlib import Path

from cluster import addons, binaries, checks, containerd, controlplane, gateway, kubectl, network, node, packages, pki
from cluster.addons import Addons
from cluster.api import Api
from cluster.controlplane import ControlPlane, Endpoints
from cluster.layout import BRIDGE_ADDRESS, FULL, NODE, State
from cluster.mounts import forget_dead_runtime
from cluster.node import Node
from cluster.ociarchive import Image
from cluster.processes import Processes
from cluster.progress import say, side_by_side, step, wait_until

# The API server listens on the bridge: pods reach it there, and nobody outside this machine does.
ENDPOINTS = Endpoints(BRIDGE_ADDRESS, 6443, 2379, 2380)
NODE_PATH = f"/api/v1/nodes/{NODE}"
NODE_SECONDS = 90.0
TRAINING_OPERATOR_SECONDS = 120.0
KUBELET_CLIENT = "admin"

DAEMONS = (*controlplane.PROGRAMS, "containerd", *node.PROGRAMS, *addons.PROGRAMS)


@dataclass
class Material:
    """What has to be built or fetched before anything can start."""

    programs: dict[str, Path]
    images: list[Image]


def up(state: State, with_gateway: bool) -> Path:
    """Bring the cluster to where it should be. Returns the path of its kubeconfig.

    Raises Refusal where it cannot run, CommandFailed when a tool fails.
    """
    processes = Processes(state)
    checks.full(state, processes)
    material = _prepare(with_gateway)
    network.check()
    state.make_folders(FULL)
    network.ensure(state)
    identities = [*controlplane.identities(ENDPOINTS), *node.IDENTITIES, *addons.IDENTITIES]
    plane = ControlPlane(state, ENDPOINTS, pki.ensure(state.pki, identities))
    with step("containerd, etcd and kube-apiserver"):
        _start_containerd(state, processes)
        plane.start(_apiserver_flags(plane))
    extras = _extras(state, plane, material)
    _start_node(state, plane, material, extras)
    if with_gateway:
        gateway.ensure(extras)
    say(f"cluster ready; try: {state.bin}/kubectl --kubeconfig {state.kubeconfig} get nodes")
    return state.kubeconfig


def status(state: State) -> bool:
    """Print what runs. Returns whether all of it does and the node takes pods."""
    processes = Processes(state)
    healthy = True
    for name in DAEMONS:
        pid = processes.pid(name)
        healthy = healthy and pid is not None
        print(f"{name:24} {f'running, pid {pid}' if pid else 'not running'}")
    for name, fine in _answers(Api(ENDPOINTS.address, ENDPOINTS.api_port, pki.Pki(state.pki))).items():
        healthy = healthy and fine
        print(f"{name:24} {'ready' if fine else 'not ready'}")
    print(f"{'kubeconfig':24} {state.kubeconfig}")
    return healthy


def _answers(api: Api) -> dict[str, bool]:
    return {
        "API server": api.ready(),
        f"node {NODE}": api.condition(NODE_PATH, "Ready"),
        "training operator": api.condition(addons.TRAINING_OPERATOR_DEPLOYMENT, "Available"),
    }


def _prepare(with_gateway: bool) -> Material:
    """Compile on one side, install packages on the other: one waits for the processor, the other for the network."""
    programs: dict[str, Path] = {}

    def compile_all() -> None:
        programs.update(binaries.ensure(binaries.KUBE, binaries.KUBE.programs))
        programs.update(binaries.ensure(binaries.TRAINING_OPERATOR, binaries.TRAINING_OPERATOR.programs))
        if with_gateway:
            programs.update(binaries.ensure(binaries.GATEWAY, binaries.GATEWAY.programs))

    def install() -> None:
        packages.ensure(packages.NODE)
        packages.unpacked(*addons.BUSYBOX)
        packages.unpacked(*addons.SHELL)

    side_by_side(compile_all, install)
    return Material(programs, [*addons.images(), *(gateway.images() if with_gateway else [])])


def _apiserver_flags(plane: ControlPlane) -> list[str]:
    return [
        f"--kubelet-client-certificate={plane.pki.certificate(KUBELET_CLIENT)}",
        f"--kubelet-client-key={plane.pki.key(KUBELET_CLIENT)}",
        f"--kubelet-certificate-authority={plane.pki.authority}",
        "--kubelet-preferred-address-types=InternalIP",
    ]


def _start_containerd(state: State, processes: Processes) -> None:
    if processes.pid("containerd") is None:
        forget_dead_runtime(state, processes)
    processes.ensure(containerd.daemon(state))


def _extras(state: State, plane: ControlPlane, material: Material) -> Addons:
    client = kubectl.ensure(state)
    kubectl.ensure_helm(state)
    return Addons(state, plane.pki, material.programs, ENDPOINTS.server, plane.api, client)


def _start_node(state: State, plane: ControlPlane, material: Material, extras: Addons) -> None:
    """Objects first, so that the node finds work the moment it is ready."""
    processes = plane.processes
    member = Node(state, plane.pki, material.programs, ENDPOINTS.server)
    for daemon in (*member.controllers(), *extras.daemons()):
        processes.ensure(daemon)
    client = containerd.Client(state)
    wait_until("containerd", client.answers, 30, f"See {processes.log('containerd')}")
    addons.load_images(client, material.images)
    for daemon in member.agents():
        processes.ensure(daemon)
    extras.apply_base()
    extras.apply_training_operator()
    if not all(_answers(plane.api).values()):
        _wait_for_node(processes, plane.api)
        with step("training operator"):
            wait_until(
                "the training operator",
                extras.training_operator_ready,
                TRAINING_OPERATOR_SECONDS,
                "Look at the pods of namespace kubeflow.",
            )
    _require_all(processes)


def _wait_for_node(processes: Processes, api: Api) -> None:
    def ready() -> bool:
        processes.require(node.KUBELET)
        return api.condition(NODE_PATH, "Ready")

    with step(f"node {NODE}"):
        wait_until(f"node {NODE}", ready, NODE_SECONDS, f"See {processes.log(node.KUBELET)}")


def _require_all(processes: Processes) -> None:
    for name in DAEMONS:
        processes.require(name)
