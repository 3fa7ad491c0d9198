"""The command line of hack/cluster."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from cluster import control_plane_only, full_cluster, preconditions, teardown
from cluster.locking import exclusive
from cluster.node import load_image
from cluster.state_folder import CONTROL_PLANE_ONLY, FULL, State, default_state
from toolkit.errors import Refusal
from toolkit.main_program import run_as_program
from toolkit.progress import say


def main(arguments: Sequence[str]) -> int:
    """Run one verb. Returns the exit status: 0 done, 1 not healthy (status), 2 could not be done."""
    options = _parser().parse_args(arguments)
    state = State(options.state.absolute()) if options.state else default_state(options.control_plane_only)
    return run_as_program(f"hack/cluster {options.verb}", lambda: int(options.action(state, options)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 hack/cluster", description="A real Kubernetes on this machine.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--state", type=Path, help="folder of the cluster (default: in the user's cache folder)")
    common.add_argument(
        "--control-plane-only", action="store_true", help="etcd and kube-apiserver only, on free ports; needs no root"
    )
    for verb, action, text in (
        ("up", _up, "start the cluster; the last line printed is the path of its kubeconfig"),
        ("down", _down, "end the cluster and remove what it made, except cached binaries and images"),
        ("status", _status, "say what runs"),
    ):
        verb_parser = verbs.add_parser(verb, parents=[common], help=text, description=text)
        verb_parser.set_defaults(action=action)
        if verb == "down":
            verb_parser.add_argument("--purge", action="store_true", help="remove the loaded images too")
    text = "give the cluster an image: an OCI or Docker archive, or the name of one in this machine's Docker engine"
    load = verbs.add_parser("load", parents=[common], help=text, description=text)
    load.set_defaults(action=_load)
    load.add_argument("image", metavar="IMAGE|ARCHIVE")
    return parser


def _up(state: State, options: argparse.Namespace) -> int:
    preconditions.state_path(state)
    state.require_free_for(CONTROL_PLANE_ONLY if options.control_plane_only else FULL)
    with exclusive(state):
        if options.control_plane_only:
            print(control_plane_only.up(state))
            return 0
        with full_cluster.halted_on_failure(state):
            wanted = {name: os.environ.get(name) == "1" for name in ("GATEWAY", "TRAINER")}
            print(full_cluster.up(state, with_gateway=wanted["GATEWAY"], with_trainer=wanted["TRAINER"]))
    return 0


def _down(state: State, options: argparse.Namespace) -> int:
    if not state.root.exists():
        say(f"no cluster in {state.root}")
        return 0
    if state.mode() is None:
        raise Refusal(f"{state.root} is not the folder of a cluster; nothing was removed.")
    with exclusive(state):
        if state.mode() == CONTROL_PLANE_ONLY:
            control_plane_only.down(state)
        elif state.mode() == FULL:
            teardown.down(state, purge=options.purge)
    return 0


def _status(state: State, options: argparse.Namespace) -> int:
    if state.mode() is None:
        print(f"no cluster in {state.root}")
        return 1
    report = control_plane_only.status if state.mode() == CONTROL_PLANE_ONLY else full_cluster.status
    return 0 if report(state) else 1


def _load(state: State, options: argparse.Namespace) -> int:
    if state.mode() != FULL:
        raise Refusal(f"no cluster to load into in {state.root}. Start one: `python3 hack/cluster up`.")
    load_image.load(state, options.image)
    return 0
