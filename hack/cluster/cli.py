"""The command line of hack/cluster."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cluster import light
from cluster.commands import CommandFailed
from cluster.errors import Refusal
from cluster.layout import State, default_state
from cluster.locking import exclusive
from cluster.progress import say


def main(arguments: Sequence[str]) -> int:
    """Run one verb. Returns the exit status: 0 done, 1 not healthy (status), 2 could not be done."""
    options = _parser().parse_args(arguments)
    state = State(options.state.absolute()) if options.state else default_state(options.control_plane_only)
    try:
        return int(options.action(state, options))
    except (Refusal, CommandFailed, TimeoutError) as error:
        print(f"hack/cluster {options.verb}: {error}", file=sys.stderr)
        return 2


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
        verbs.add_parser(verb, parents=[common], help=text, description=text).set_defaults(action=action)
    return parser


def _up(state: State, options: argparse.Namespace) -> int:
    with exclusive(state):
        print(light.up(state))
    return 0


def _down(state: State, options: argparse.Namespace) -> int:
    with exclusive(state):
        if state.mode() is None:
            say(f"no cluster in {state.root}")
        else:
            light.down(state)
    return 0


def _status(state: State, options: argparse.Namespace) -> int:
    if state.mode() is None:
        print(f"no cluster in {state.root}")
        return 1
    return 0 if light.status(state) else 1
