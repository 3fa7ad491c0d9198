"""The cluster that is made from source on this machine, and the images in it."""

from pathlib import Path

from cluster import full_cluster, preconditions
from cluster.locking import exclusive
from cluster.state_folder import FULL, State, default_state
from images import buildah
from images.build import Notes, build
from images.definitions import DEFINITIONS, choose
from toolkit.work_groups import side_by_side

# The chart's Deployments, by the image that they run: an image keeps its tag when its content changes.
RESTARTED = {"operator": "operator", "memory": "dataPlane"}


def state() -> State:
    """The folder of the cluster."""
    return default_state(control_plane_only=False)


def start(more_images: tuple[str, ...] = ()) -> Path:
    """Have pods run, and all images in the cluster; the training operator may not be ready. Returns the kubeconfig.

    `more_images`: those that the chart does not install.

    Compiling Kubernetes waits for the processor and building images mostly for the network, so both go on at the same
    time. An image is loaded as soon as it is built. Raises Refusal or CommandFailed.
    """
    here = state()
    preconditions.state_path(here)
    here.require_free_for(FULL)
    wanted = [*choose([]), *(choose(list(more_images)) if more_images else ())]
    with exclusive(here), exclusive(State(buildah.folder())):

        def compile_and_start() -> None:
            full_cluster.start_node(here)
            full_cluster.start_training_operator(here)

        side_by_side(compile_and_start, lambda: build(wanted, here))
    return here.kubeconfig


def add_trainer() -> None:
    """Kubeflow Trainer, ready. Raises CommandFailed."""
    with exclusive(state()):
        full_cluster.add_trainer(state())


def finish(with_gateway: bool = False) -> None:
    """Wait for the training operator, and add the gateway if wanted. The chart may be installed meanwhile."""
    with exclusive(state()):
        full_cluster.add_training_operator(state())
        if with_gateway:
            full_cluster.add_gateway(state())


def restart_on_new_images() -> list[str]:
    """Helm arguments with an annotation that changes with an image's content, so that its pods are replaced."""
    notes = Notes(buildah.folder() / "notes.json")
    digests = {name: notes.get(DEFINITIONS[name].reference).get("exported", "") for name in RESTARTED}
    return [f"--set-string={part}.podAnnotations.learnloop-image={digests[name]}" for name, part in RESTARTED.items()]
