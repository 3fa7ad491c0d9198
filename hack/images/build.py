"""Building what changed and giving the cluster the layers it lacks."""

import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

from cluster import preconditions
from cluster.node.containerd import Client
from cluster.node.oci_archive import Archive
from cluster.state_folder import State
from images import base_image, buildah, emulation, supply_chain
from images.definitions import Definition
from toolkit import debian_packages
from toolkit.commands import CommandFailed
from toolkit.progress import say, step, wait_until
from toolkit.work_groups import side_by_side

CONTAINERD_SECONDS = 900.0


def build(definitions: list[Definition], state: State | None) -> None:
    """Build the images and, given a running cluster's state, load them; whatever is current is left alone.

    Raises Refusal or CommandFailed.
    """
    preconditions.disk(buildah.folder(), 0 if buildah.folder().exists() else preconditions.IMAGES_GIBIBYTES)
    debian_packages.ensure(buildah.TOOLS)
    buildah.folder().mkdir(parents=True, exist_ok=True)
    buildah.forget_interrupted()
    notes = Notes(buildah.folder() / "notes.json")
    client = Client(state) if state else None
    bases = {one: base_image.ensure(one) for one in {definition.architecture for definition in definitions}}

    def build_one(definition: Definition) -> None:
        base_id = bases[definition.architecture]
        wanted = definition.digest(base_id)
        _build_if_stale(definition, wanted, notes)
        image = buildah.identifier(definition.reference) or ""
        supply_chain.write(definition, wanted, base_id, image, supply_chain.commit())

    # One core installs packages while another copies the layers of the image before.
    for built, next_one in pairwise([None, *definitions, None]):
        jobs = [partial(build_one, next_one)] if next_one else []
        if client and built:
            jobs.append(partial(_load_if_missing, built, client, notes))
        if jobs:
            side_by_side(*jobs)


class Notes:
    """The inputs of each image's last build, and the digest of its export."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._notes: dict[str, dict[str, str]] = json.loads(path.read_text()) if path.exists() else {}

    def get(self, reference: str) -> Mapping[str, str]:
        """The notes on an image: `inputs`, and `exported` once it was loaded."""
        return self._notes.get(reference, {})

    def set(self, reference: str, **facts: str) -> None:
        """Replace what is known of an image, in one rename."""
        with self._lock:
            self._notes[reference] = facts
            new = self._path.with_suffix(".new")
            new.write_text(json.dumps(self._notes, indent=1))
            new.rename(self._path)


def _build_if_stale(definition: Definition, wanted: str, notes: Notes) -> None:
    reference = definition.reference
    if notes.get(reference).get("inputs") == wanted and buildah.identifier(reference):
        return
    with emulation.of(definition.architecture), step(f"building {reference}") as current:
        arguments = {"BASE_IMAGE": base_image.reference(definition.architecture), **definition.arguments}
        where = definition.dockerfile, definition.context
        buildah.build(reference, *where, arguments, definition.architecture, current)
    notes.set(reference, inputs=wanted)


def _load_if_missing(definition: Definition, client: Client, notes: Notes) -> None:
    wait_until("containerd", client.answers, CONTAINERD_SECONDS)  # it may be on its way, in parallel with this build
    reference = definition.reference
    exported_before = notes.get(reference).get("exported")
    if exported_before and client.images().get(reference) == exported_before:
        say(f"{reference} is current")
        return
    with step(f"loading {reference}") as current:
        exported = buildah.export(reference, current)
        _import(client, exported)
    notes.set(reference, inputs=notes.get(reference)["inputs"], exported=exported.digest)


def _import(client: Client, archive: Archive) -> None:
    """Only what containerd lacks is sent: a change of code costs kilobytes, not the whole image."""
    present = client.blobs()
    missing = {digest: blob for digest, blob in archive.blobs.items() if digest not in present}
    try:
        client.load(replace(archive, blobs=missing))
    except CommandFailed:
        # containerd may have collected a layer between our look and the import; then all of it is sent.
        client.load(archive)
