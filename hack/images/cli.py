"""The command line of hack/images."""

import argparse
from collections.abc import Sequence

from cluster.locking import exclusive
from cluster.node.containerd import Client
from cluster.state_folder import FULL, State, default_state
from images.build import Notes, build
from images.buildah import folder
from images.definitions import DEFINITIONS, choose
from toolkit.errors import Refusal
from toolkit.main_program import run_as_program


def main(arguments: Sequence[str]) -> int:
    """Run one verb. Returns the exit status: 0 done, 2 could not be done."""
    options = _parser().parse_args(arguments)
    return run_as_program(f"hack/images {options.verb}", lambda: options.action(options) or 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 hack/images", description="The container images.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    listing = verbs.add_parser("list", help="say which images there are, and the digest last loaded")
    listing.set_defaults(action=_list)
    building = verbs.add_parser("build", help="build the images that changed and load them into the local cluster")
    building.add_argument("names", metavar="NAME", nargs="*", help="by default all that the chart installs")
    building.add_argument("--no-load", action="store_true", help="only build; the cluster need not run yet")
    building.set_defaults(action=_build)
    return parser


def _list(_: argparse.Namespace) -> None:
    notes = Notes(folder() / "notes.json")
    for definition in DEFINITIONS.values():
        loaded = notes.get(definition.reference).get("exported", "-")
        print(f"{definition.name:12} {definition.reference:32} {loaded}")


def _build(options: argparse.Namespace) -> None:
    definitions = choose(options.names)
    state = None if options.no_load else _cluster()
    # One builder at a time: the store would bear two, but they would build the same image twice.
    with exclusive(State(folder())):
        build(definitions, state)


def _cluster() -> State:
    state = default_state(control_plane_only=False)
    if state.mode() != FULL or not Client(state).answers():
        raise Refusal("the local cluster does not run. Start it with `python3 hack/cluster up`, or pass --no-load.")
    return state
