"""Gets a cluster with learnloop in it: the local one made on the spot, or the user's own."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from demo import container_cluster, source_cluster, users_cluster
from demo.cluster_choice import Choice
from demo.narrator import Narrator
from demo.running import run_shown, tool
from demo.settings import RELEASE, ROOT, SOURCE, SYSTEM_NAMESPACE, Settings
from toolkit.work_groups import side_by_side

LOCAL_VALUES = ROOT / "hack" / "cluster" / "values.yaml"
TLS_VALUES = ROOT / "hack" / "cluster" / "values-tls.yaml"
TRAINER_VALUES = ROOT / "hack" / "cluster" / "values-trainer.yaml"


@dataclass(frozen=True)
class Cluster:
    """The access to a cluster, and Helm's values for the images in it."""

    kubectl: list[str]
    helm: list[str]
    values: tuple[Path, ...]
    images: list[str]


def prepare(settings: Settings, narrator: Narrator) -> list[str]:
    """All steps together, for tests and measurements: the user's own cluster or the one from source, with learnloop.

    Returns the kubectl command that reaches it. Raises Refusal or CommandFailed.
    """
    choice = Choice(None if settings.context else SOURCE, "")
    cluster = reach(settings, choice, narrator)
    finish = [lambda: source_cluster.finish(os.environ.get("GATEWAY") == "1")] if choice.kind == SOURCE else []
    if finish and os.environ.get("TRAINER") == "1":
        source_cluster.add_trainer()  # the chart has an object of its kinds
        cluster = replace(cluster, values=(*cluster.values, TRAINER_VALUES))
    side_by_side(lambda: install(cluster, narrator), *finish)
    return cluster.kubectl


def reach(settings: Settings, choice: Choice, narrator: Narrator, more_images: tuple[str, ...] = ()) -> Cluster:
    """Have the chosen cluster, with the images in it. Raises Refusal or CommandFailed.

    `more_images`: what a cluster from source gets besides; every other one pulls what the chart names.
    """
    if choice.kind == SOURCE:
        narrator.chapter("A real Kubernetes on this machine")
        kubeconfig = source_cluster.start(more_images)
        tools = kubeconfig.parent / "bin"
        os.environ["KUBECONFIG"] = str(kubeconfig)
        os.environ["PATH"] = f"{os.environ['PATH']}{os.pathsep}{tools}"  # for the plugin
        values = settings.values or (LOCAL_VALUES,)
        images = source_cluster.restart_on_new_images()
        return Cluster([tool("kubectl", tools)], [tool("helm", tools)], values, images)
    if choice.kind:
        narrator.chapter(f"A {choice.kind} cluster on this machine")
        settings = replace(settings, context=container_cluster.ensure(choice.kind, narrator))
    assert settings.context is not None
    kubectl, helm = users_cluster.reach(settings.context)
    images = users_cluster.provide_images(settings, settings.context, narrator)
    return Cluster(kubectl, helm, settings.values, images)


def install(cluster: Cluster, narrator: Narrator) -> None:
    """Install the chart, or bring it up to this checkout. Raises CommandFailed."""
    narrator.chapter("Installing learnloop with its Helm chart")
    files = [item for path in cluster.values for item in ("--values", str(path))]
    chart = [RELEASE, str(ROOT / "charts" / "learnloop"), "--namespace", SYSTEM_NAMESPACE, "--create-namespace"]
    run_shown([*cluster.helm, "upgrade", "--install", *chart, *files, *cluster.images, "--wait", "--timeout", "8m"])
    narrator.say(f"operator and data plane are ready in namespace {SYSTEM_NAMESPACE}")
