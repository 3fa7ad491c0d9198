"""The user's own cluster: what must be there already, and how it gets this checkout's images."""

import os

from demo.narrator import Narrator, StoryFailedError
from demo.running import run_shown, tool
from demo.settings import ROOT, Settings
from toolkit.commands import ask, run

GANGS = ("pytorchjobs.kubeflow.org", "trainjobs.trainer.kubeflow.org")
"""Definitions of the kinds that run several ranks; one is enough."""
# Image name → Dockerfile and the chart's value it belongs to.
PRODUCT = {
    "operator": ("operator/Dockerfile", "operator"),
    "trainer": ("trainer_image/Dockerfile", "trainer"),
    "serving": ("serving_image/Dockerfile", "serving"),
    "memory": ("memory_image/Dockerfile", "dataPlane"),
}


def reach(context: str) -> tuple[list[str], list[str]]:
    """kubectl and helm for the context.

    Raises:
        StoryFailedError: the cluster does not answer, or has nothing that runs gangs, which only its owner may install.
    """
    kubectl = [tool("kubectl"), "--context", context]
    helm = [tool("helm"), "--kube-context", context]
    kinds = ask([*kubectl, "get", "crd", *GANGS, "--ignore-not-found", "-o", "name"])
    if kinds.code or not kinds.out.strip():
        raise StoryFailedError(
            f"context {context!r}: {kinds.err.strip() or 'none of the kinds ' + ', '.join(GANGS) + ' is there'}. The "
            "training of the demo has several ranks: install the Kubeflow training operator v1 (its overlay "
            "manifests/overlays/standalone) or Kubeflow Trainer v2, and run this again. "
            "This demo installs nothing outside its own namespaces and CRDs."
        )
    return kubectl, helm


def provide_images(settings: Settings, context: str, narrator: Narrator) -> list[str]:
    """Builds the four images with Docker and hands them to the cluster; returns the Helm arguments that name them.

    kind and k3d get them loaded, any other cluster through the registry in IMAGE_REGISTRY. With VALUES set, the
    images are whatever those files name. BASE_IMAGE is what all are built on, TRAINER_BASE_IMAGE the trainer alone:
    one with ROCm's PyTorch, where ACCELERATOR is rocm. Left out, each Dockerfile's own.

    Raises:
        StoryFailedError: no image can get from here into the cluster.
    """
    if settings.values:
        return []
    registry = os.environ.get("IMAGE_REGISTRY")
    if not registry and not context.startswith(("kind-", "k3d-")):
        raise StoryFailedError(
            f"context {context!r} is neither kind's nor k3d's, so images must come from a registry: set IMAGE_REGISTRY "
            "to one that you may push to and the cluster may pull from, or VALUES to Helm values that name images"
        )
    docker = tool("docker")
    version = run(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT).strip()
    arguments = []
    for name, (dockerfile, value) in PRODUCT.items():
        repository = f"{registry}/learnloop/{name}" if registry else f"learnloop.local/{name}"
        narrator.say(f"building {repository}:{version}")
        chosen = [part for argument in _build_arguments(name) for part in ("--build-arg", argument)]
        run_shown([docker, "build", "-t", f"{repository}:{version}", "-f", dockerfile, *chosen, "."])
        run_shown(_hand_over(docker, context, f"{repository}:{version}", registry))
        arguments += [
            f"--set-string={value}.image.repository={repository}",
            f"--set-string={value}.image.tag={version}",
        ]
    return arguments


def _build_arguments(name: str) -> list[str]:
    """The environment's settings for the image's build."""
    base, trainer = os.environ.get("BASE_IMAGE"), name == "trainer"
    if trainer:
        base = os.environ.get("TRAINER_BASE_IMAGE") or base
    chosen = [f"ACCELERATOR={os.environ.get('ACCELERATOR', 'cpu')}"] if trainer else []
    return [*chosen, f"BASE_IMAGE={base}"] if base else chosen


def _hand_over(docker: str, context: str, image: str, registry: str | None) -> list[str]:
    if registry:
        return [docker, "push", image]
    if context.startswith("kind-"):
        return [tool("kind"), "load", "docker-image", "--name", context.removeprefix("kind-"), image]
    return [tool("k3d"), "image", "import", "--cluster", context.removeprefix("k3d-"), image]
