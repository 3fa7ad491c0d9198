"""`load`: an image from an archive or from this machine's Docker engine into the cluster."""

import tempfile
from pathlib import Path

from cluster.node.containerd import Client
from cluster.state_folder import State
from toolkit.commands import run, succeeds
from toolkit.errors import Refusal
from toolkit.progress import step


def load(state: State, image: str) -> None:
    """Import it. Raises Refusal when the image is missing, CommandFailed when the import fails."""
    client = Client(state)
    if not client.answers():
        raise Refusal("the cluster's containerd does not answer. Start the cluster: `python3 hack/cluster up`.")
    with step(f"loading {image}"):
        if Path(image).is_file():
            client.load(Path(image))
        else:
            _from_docker(client, image)


def _from_docker(client: Client, image: str) -> None:
    if not succeeds(["docker", "image", "inspect", image]):
        raise Refusal(
            f"{image} is not a file, and no Docker engine here has an image of that name. "
            "The product's own images: `python3 hack/images build`."
        )
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch) / "image.tar"
        run(["docker", "save", "--output", archive, image])
        client.load(archive)
