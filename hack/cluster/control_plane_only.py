"""The control-plane-only mode: etcd and kube-apiserver on free loopback ports, for anybody, as many as wanted."""

import shutil
from pathlib import Path

from cluster import client_tools, preconditions
from cluster.control_plane import pki, servers
from cluster.control_plane.servers import ControlPlane
from cluster.processes import Processes
from cluster.state_folder import CONTROL_PLANE_ONLY, State
from go_programs import go_build
from toolkit.progress import say, step

# No controller-manager runs, so no ServiceAccount is ever made and the admission plugin of that name would refuse every
# pod; and a loopback address is nothing to publish as the endpoint of the `kubernetes` Service.
FLAGS = ("--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none")
# The users of only these two send them many requests from the same few cores. At Go's default, collecting garbage
# takes a fifth of their processor time (184 s for a burst of 10,000 changes, 145 s so); the limit is what they keep to.
ENVIRONMENT = {"GOGC": "400", "GOMEMLIMIT": "4GiB"}


def up(state: State) -> Path:
    """Start it, or find it running. Returns the path of its kubeconfig.

    Raises Refusal where it cannot run.
    """
    preconditions.light(state)
    go_build.ensure(go_build.KUBE, servers.PROGRAMS)
    state.make_folders(CONTROL_PLANE_ONLY)
    endpoints = servers.free_endpoints(state)
    made = pki.ensure(state.pki, servers.identities(endpoints))
    with step("etcd and kube-apiserver"):
        ControlPlane(state, endpoints, made).start(FLAGS, ENVIRONMENT)
    client_tools.ensure(state)
    say(f"API server at {endpoints.server}")
    return state.kubeconfig


def down(state: State) -> None:
    """End it and remove its folder."""
    processes = Processes(state)
    with step(f"removing {state.root}"):
        servers.stop(processes)
        processes.stop_descendants()
        shutil.rmtree(state.root, ignore_errors=True)


def status(state: State) -> bool:
    """Print what runs. Returns whether all of it does."""
    processes = Processes(state)
    pids = {name: processes.pid(name) for name in servers.PROGRAMS}
    for name, pid in pids.items():
        print(f"{name:24} {f'running, pid {pid}' if pid else 'not running'}")
    if None in pids.values():
        return False
    plane = ControlPlane(state, servers.free_endpoints(state), pki.Pki(state.pki))
    ready = plane.api.ready()
    print(f"{'API server':24} {'ready' if ready else 'not ready'} at {plane.endpoints.server}")
    print(f"{'kubeconfig':24} {state.kubeconfig}")
    return ready
