"""No image of the chart, or of pods that the operator makes, is a tag that means something else tomorrow."""

import re

import pytest

from testing.manifests import made_by_operator
from testing.manifests.rendered_chart import VALUES

from .conftest import Render

EXACT = re.compile(r"@sha256:[0-9a-f]{64}$|:v?[0-9]+\.[0-9]+\.[0-9]+([-+.][\w.-]+)?$|:server-b[0-9]+$")
"""A digest, a whole version, or a build of llama.cpp, which counts its builds."""
NAMED_BY_THE_AUTHOR = "registry.example.com/garak:0.17"
"""Of a suite of gates, as the object under test has it."""
LOCAL = "localhost/"
"""Built on the same machine, and never pulled: the tag says what was built last."""


def images(node) -> set[str]:
    """Of every container, and of every variable that names one for pods that the operator makes."""
    if isinstance(node, (list, tuple)):
        return {image for item in node for image in images(item)}
    if not isinstance(node, dict):
        return set()
    references = {node["image"]} if isinstance(node.get("image"), str) else set()
    if str(node.get("name", "")).endswith("_IMAGE") and node.get("value"):
        references.add(node["value"])
    return references | {image for item in node.values() for image in images(item)}


@pytest.mark.parametrize("name", VALUES)
def test_every_image_is_one_version_or_a_digest(render: Render, name: str) -> None:
    references = images(render(VALUES[name]).objects)
    assert len(references) >= 5, "what is looked at has images"
    moving = {image for image in references if not image.startswith(LOCAL) and not EXACT.search(image)}
    assert not moving, f"{name}: name a version or a digest"


@pytest.mark.parametrize("tag", ["latest", "pg17", "server", "17", "2.53", "v2", "alpine"])
def test_a_tag_that_moves_is_seen(tag: str) -> None:
    assert not EXACT.search(f"registry.example.com/some/image:{tag}")


@pytest.mark.parametrize(("case", "objects"), made_by_operator.everything().items())
def test_a_pod_that_the_operator_makes_adds_no_image_of_its_own(case: str, objects: tuple) -> None:
    """The tests' settings name one version of each, as the chart does."""
    moving = {image for image in images(list(objects)) if image != NAMED_BY_THE_AUTHOR and not EXACT.search(image)}
    assert not moving, f"{case}: an image that the chart's values do not choose"
