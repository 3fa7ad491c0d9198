"""Gets a cluster with learnloop in it: the local one made on the spot, or the user's own."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from demo import own_cluster
from demo.narrator import Narrator, StoryFailedError
from demo.running import run_shown, tool
from demo.settings import RELEASE, ROOT, SYSTEM_NAMESPACE, Settings

LOCAL_VALUES = ROOT / "hack" / "cluster" / "values.yaml"


def prepare(settings: Settings, narrator: Narrator) -> list[str]:
    """Installs everything the story needs and returns the kubectl command that reaches it.

    Raises:
        StoryFailedError: the cluster cannot be made or lacks something only its owner may install.
    """
    if settings.context:
        kubectl, helm = own_cluster.reach(settings.context)
        values, images = settings.values, own_cluster.provide_images(settings, settings.context, narrator)
    else:
        kubectl, helm = _local_cluster(narrator)
        values, images = settings.values or (LOCAL_VALUES,), _restart_on_new_images()
    narrator.chapter("Installing learnloop with its Helm chart")
    files = [item for path in values for item in ("--values", str(path))]
    chart = [RELEASE, str(ROOT / "charts" / "learnloop"), "--namespace", SYSTEM_NAMESPACE, "--create-namespace"]
    run_shown([*helm, "upgrade", "--install", *chart, *files, *images, "--wait", "--timeout", "8m"])
    narrator.say(f"operator and data plane are ready in namespace {SYSTEM_NAMESPACE}")
    return kubectl


def _local_cluster(narrator: Narrator) -> tuple[list[str], list[str]]:
    narrator.chapter("A real Kubernetes on this machine")
    images = [sys.executable, str(ROOT / "hack" / "images"), "build"]
    # Compiling Kubernetes and building images need different things: side by side they take the longer of the two.
    with ThreadPoolExecutor(1) as beside:
        built = beside.submit(run_shown, [*images, "--no-load"])
        kubeconfig = run_shown([sys.executable, str(ROOT / "hack" / "cluster"), "up"]).splitlines()[-1].strip()
        built.result()
    if not Path(kubeconfig).is_file():
        raise StoryFailedError(f"hack/cluster up printed {kubeconfig!r} instead of a kubeconfig")
    run_shown(images)
    tools = Path(kubeconfig).parent / "bin"
    os.environ["KUBECONFIG"] = kubeconfig
    return [tool("kubectl", tools)], [tool("helm", tools)]


def _restart_on_new_images() -> list[str]:
    """Local images keep one tag, so an annotation tells the Deployments that the content behind it is new."""
    listed = subprocess.run(
        [sys.executable, str(ROOT / "hack" / "images"), "list"], capture_output=True, text=True, check=True
    ).stdout
    digests = {words[0]: words[2] for line in listed.splitlines() if len(words := line.split()) == 3}
    parts = {"operator": "operator", "memory": "dataPlane"}
    return [f"--set-string={part}.podAnnotations.learnloop-image={digests[image]}" for image, part in parts.items()]
