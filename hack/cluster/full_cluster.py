"""The full cluster: every step looks first, and does only what is not so yet."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster import client_tools, preconditions, teardown
from cluster.addons import gateway, standard, trainer
from cluster.addons.standard import Addons
from cluster.addresses import BRIDGE_ADDRESS, NODE
from cluster.control_plane import pki, servers
from cluster.control_plane.api_client import Api
from cluster.control_plane.servers import ControlPlane, Endpoints
from cluster.node import components, containerd, network
from cluster.node.components import Node
from cluster.node.mounts import forget_dead_runtime
from cluster.processes import Processes
from cluster.state_folder import FULL, State
from go_programs import go_build
from toolkit import debian_packages
from toolkit.progress import say, step, wait_until
from toolkit.work_groups import cleaning_up, side_by_side

# The API server listens on the bridge: pods reach it there, and clients outside this machine do not.
ENDPOINTS = Endpoints(BRIDGE_ADDRESS, 6443, 2379, 2380)
NODE_PATH = f"/api/v1/nodes/{NODE}"
NODE_SECONDS = 90.0
CONTAINERD_SECONDS = 30.0
TRAINING_OPERATOR_SECONDS = 120.0
KUBELET_CLIENT = "admin"

DAEMONS = (*servers.PROGRAMS, "containerd", *components.PROGRAMS, *standard.PROGRAMS)


def up(state: State, with_gateway: bool, with_trainer: bool = False) -> Path:
    """Bring the cluster to where it should be. Returns the path of its kubeconfig.

    Raises Refusal where it cannot run, CommandFailed when a tool fails.
    """
    start_node(state)
    add_training_operator(state)
    if with_gateway:
        add_gateway(state)
    if with_trainer:
        add_trainer(state)
    say(f"cluster ready; try: {state.bin}/kubectl --kubeconfig {state.kubeconfig} get nodes")
    return state.kubeconfig


def start_node(state: State) -> None:
    """Control plane and node: pods run. What is added later, PyTorchJobs and the gateway, is not there yet."""
    processes = Processes(state)
    preconditions.full(state, processes)
    # One waits for the processor, the other for the network; and images can be loaded while Kubernetes is being built.
    side_by_side(lambda: _build(go_build.KUBE), lambda: _start_containerd(state, processes), _fetch_training_operator)
    plane = _control_plane(state)
    with step("etcd and kube-apiserver"):
        plane.start(_apiserver_flags(plane))
    client_tools.ensure_helm(state)
    _start_components(plane, _addons(state, plane))


def start_training_operator(state: State) -> standard.Addons:
    """The Kubeflow training operator, which makes the pods of PyTorchJobs; its pod may not be ready yet."""
    _build(go_build.TRAINING_OPERATOR)
    standard.load_images(containerd.Client(state), [standard.training_operator_image()])
    extras = _addons(state, _control_plane(state))
    extras.apply_training_operator()
    return extras


def add_training_operator(state: State) -> None:
    """The Kubeflow training operator, ready."""
    extras = start_training_operator(state)
    if not extras.training_operator_ready():
        hint = "Look at the pods of namespace kubeflow."
        with step("training operator"):
            wait_until("the training operator", extras.training_operator_ready, TRAINING_OPERATOR_SECONDS, hint)


def add_gateway(state: State) -> None:
    """The Gateway API's CRDs, Contour and Envoy."""
    _build(go_build.GATEWAY)
    standard.load_images(containerd.Client(state), gateway.images())
    gateway.ensure(_addons(state, _control_plane(state)))


def add_trainer(state: State) -> None:
    """Kubeflow Trainer v2 and JobSet, which make the pods of TrainJobs."""
    _build(go_build.TRAINER)
    standard.load_images(containerd.Client(state), trainer.images())
    trainer.ensure(_addons(state, _control_plane(state)))


@contextmanager
def halted_on_failure(state: State) -> Iterator[None]:
    """Nothing is left running by a start that failed, unless it ran before; logs and data stay."""
    ran_before = Processes(state).descendants()
    try:
        yield
    except BaseException:
        if not ran_before and state.mode() == FULL:
            with cleaning_up():
                teardown.halt(state)
        raise


def _build(module: go_build.Module) -> dict[str, Path]:
    return go_build.ensure(module, module.programs)


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
        "training operator": api.condition(standard.TRAINING_OPERATOR_DEPLOYMENT, "Available"),
    }


def _apiserver_flags(plane: ControlPlane) -> list[str]:
    return [
        f"--kubelet-client-certificate={plane.pki.certificate(KUBELET_CLIENT)}",
        f"--kubelet-client-key={plane.pki.key(KUBELET_CLIENT)}",
        f"--kubelet-certificate-authority={plane.pki.authority}",
        "--kubelet-preferred-address-types=InternalIP",
    ]


def _start_containerd(state: State, processes: Processes) -> None:
    debian_packages.ensure(debian_packages.NODE)
    network.check()
    state.make_folders(FULL)
    network.ensure(state)
    if processes.pid("containerd") is None:
        forget_dead_runtime(state, processes)
    processes.ensure(containerd.daemon(state))
    standard.fetch()
    client = containerd.Client(state)
    wait_until("containerd", client.answers, CONTAINERD_SECONDS, f"See {processes.log('containerd')}")


def _fetch_training_operator() -> None:
    """Its sources, while the processor is busy with others: the network is idle by then."""
    go_build.fetch(go_build.TRAINING_OPERATOR)


def _control_plane(state: State) -> ControlPlane:
    identities = [*servers.identities(ENDPOINTS), *components.IDENTITIES, *standard.IDENTITIES]
    return ControlPlane(state, ENDPOINTS, pki.ensure(state.pki, identities))


def _addons(state: State, plane: ControlPlane) -> Addons:
    return Addons(state, plane.pki, _build(go_build.KUBE), ENDPOINTS.server, plane.api, client_tools.ensure(state))


def _start_components(plane: ControlPlane, extras: Addons) -> None:
    """Objects first, so that the node finds work the moment it is ready."""
    processes = plane.processes
    member = Node(plane.state, plane.pki, _build(go_build.KUBE), ENDPOINTS.server)
    for daemon in (*member.controllers(), *extras.daemons()):
        processes.ensure(daemon)
    standard.load_images(containerd.Client(plane.state), standard.images())
    for daemon in member.agents():
        processes.ensure(daemon)
    extras.apply_base()
    extras.apply_training_kinds()
    if not plane.api.condition(NODE_PATH, "Ready"):
        _wait_for_node(processes, plane.api)
    _require_all(processes)


def _wait_for_node(processes: Processes, api: Api) -> None:
    def ready() -> bool:
        processes.require(components.KUBELET)
        return api.condition(NODE_PATH, "Ready")

    with step(f"node {NODE}"):
        wait_until(f"node {NODE}", ready, NODE_SECONDS, f"See {processes.log(components.KUBELET)}")


def _require_all(processes: Processes) -> None:
    for name in DAEMONS:
        processes.require(name)
