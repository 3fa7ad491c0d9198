"""The processes that make a cluster of a bare API server: controllers, the scheduler, and kwok in place of kubelets.

Everything but the kubelets is Kubernetes' own. kwok says of each node that it is ready, and of each pod that was
scheduled to one that it runs.
"""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from go_programs import go_build
from testing.servers.child_process import running

KWOK_MODULE = "sigs.k8s.io/kwok"
STAGES = (
    "node/fast/node-initialize.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-delete.yaml",
)
"""Of kwok's own: a node is ready as soon as it is there, a pod runs as soon as it has a node, and goes when asked."""
CONTROLLERS = (
    "deployment-controller",
    "replicaset-controller",
    "garbage-collector-controller",
    # Takes the taint `not-ready` off nodes that are ready; without it nothing is ever scheduled.
    "node-lifecycle-controller",
)
REQUESTS_A_SECOND = 200
"""Of each Kubernetes component, so that filling the cluster does not take an hour; the operator has its own default."""
LOOPBACK = "127.0.0.1"


@contextmanager
def simulated_nodes(kubeconfig: Path) -> Iterator[dict[str, int]]:
    """Yields the pids by name; all are ended with the block. Builds what is missing, which takes minutes.

    Raises Refusal without a Go toolchain, CommandFailed when a build fails.
    """
    programs = go_build.ensure(go_build.KUBE, ["kube-scheduler", "kube-controller-manager"])
    programs |= go_build.ensure(go_build.KWOK, ["kwok"])
    commands = {
        "kube-controller-manager": _controllers(programs["kube-controller-manager"], kubeconfig),
        "kube-scheduler": _component(programs["kube-scheduler"], kubeconfig),
        "kwok": _kwok(programs["kwok"], kubeconfig),
    }
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(running(line, kubeconfig.parent / f"{name}.log"))
            for name, line in commands.items()
        }


def _component(program: Path, kubeconfig: Path) -> list[str]:
    return [
        str(program),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={_free_port()}",
        f"--kube-api-qps={REQUESTS_A_SECOND}",
        f"--kube-api-burst={2 * REQUESTS_A_SECOND}",
        "--leader-elect=false",
        "--profiling=false",
    ]


def _controllers(program: Path, kubeconfig: Path) -> list[str]:
    # kwok renews no Lease here: at thousands of nodes that alone would keep a core busy.
    more = [f"--controllers={','.join(CONTROLLERS)}", "--node-monitor-grace-period=24h"]
    return [*_component(program, kubeconfig), *more, "--concurrent-gc-syncs=4"]


def _kwok(program: Path, kubeconfig: Path) -> list[str]:
    folder = go_build.module_folder(go_build.KWOK, KWOK_MODULE) / "kustomize" / "stage"
    config = kubeconfig.parent / "kwok-stages.yaml"
    config.write_text("\n---\n".join((folder / stage).read_text() for stage in STAGES))
    return [
        str(program),
        f"--kubeconfig={kubeconfig}",
        f"--config={config}",
        "--manage-all-nodes=true",
        "--node-lease-duration-seconds=0",
        "--cidr=10.0.0.1/24",
        "--node-ip=10.0.0.1",
        f"--server-address={LOOPBACK}:{_free_port()}",
    ]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
