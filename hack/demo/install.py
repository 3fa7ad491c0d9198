"""Gets a cluster with learnloop in it: the local one made on the spot, or the user's own."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from demo.narrator import Narrator, StoryFailedError
from demo.settings import RELEASE, ROOT, SYSTEM_NAMESPACE, Settings


def prepare(settings: Settings, narrator: Narrator) -> list[str]:
    """Installs everything the story needs and returns the kubectl command that reaches it.

    Raises:
        StoryFailedError: the cluster cannot be made or lacks something only its owner may install.
    """
    if settings.context:
        kubectl, helm = _own_cluster(settings.context)
        values, extra = settings.values, []
    else:
        kubectl, helm = _local_cluster(narrator)
        values, extra = settings.values or (ROOT / "hack" / "cluster" / "values.yaml",), _restart_on_new_images()
    narrator.chapter("Installing learnloop with its Helm chart")
    _install(helm, values, extra)
    narrator.say(f"operator and data plane are ready in namespace {SYSTEM_NAMESPACE}")
    return kubectl


def _local_cluster(narrator: Narrator) -> tuple[list[str], list[str]]:
    narrator.chapter("A real Kubernetes on this machine")
    images = [sys.executable, str(ROOT / "hack" / "images"), "build"]
    # Compiling Kubernetes and building images need different things: side by side they take the longer of the two.
    with ThreadPoolExecutor(1) as beside:
        built = beside.submit(_run_shown, [*images, "--no-load"])
        kubeconfig = _run_shown([sys.executable, str(ROOT / "hack" / "cluster"), "up"]).splitlines()[-1].strip()
        built.result()
    if not Path(kubeconfig).is_file():
        raise StoryFailedError(f"hack/cluster up printed {kubeconfig!r} instead of a kubeconfig")
    _run_shown(images)
    tools = Path(kubeconfig).parent / "bin"
    os.environ["KUBECONFIG"] = kubeconfig
    return [_tool("kubectl", tools)], [_tool("helm", tools)]


def _restart_on_new_images() -> list[str]:
    """Local images keep one tag, so an annotation tells the Deployments that the content behind it is new."""
    listed = subprocess.run(
        [sys.executable, str(ROOT / "hack" / "images"), "list"], capture_output=True, text=True, check=True
    ).stdout
    digests = {words[0]: words[2] for line in listed.splitlines() if len(words := line.split()) == 3}
    parts = {"operator": "operator", "memory": "dataPlane"}
    return [f"--set-string={part}.podAnnotations.learnloop-image={digests[image]}" for image, part in parts.items()]


def _own_cluster(context: str) -> tuple[list[str], list[str]]:
    kubectl = [_tool("kubectl"), "--context", context]
    helm = [_tool("helm"), "--kube-context", context]
    found = subprocess.run(
        [*kubectl, "get", "crd", "pytorchjobs.kubeflow.org", "-o", "name"], capture_output=True, text=True, check=False
    )
    if found.returncode:
        raise StoryFailedError(
            f"context {context!r}: {found.stderr.strip() or 'no PyTorchJob CRD'}. Training needs the Kubeflow "
            "training operator v1; install it (its overlay manifests/overlays/standalone) and run this again. "
            "This demo installs nothing outside its own namespaces and CRDs."
        )
    return kubectl, helm


def _tool(name: str, folder: Path | None = None) -> str:
    if folder and (folder / name).exists():
        return str(folder / name)
    found = shutil.which(name)
    if not found:
        raise StoryFailedError(f"{name} is not on PATH; install it and run this again")
    return found


def _install(helm: list[str], values: tuple[Path, ...], extra: list[str]) -> None:
    files = [item for path in values for item in ("--values", str(path))]
    chart = str(ROOT / "charts" / "learnloop")
    _run_shown(
        [*helm, "upgrade", "--install", RELEASE, chart, "--namespace", SYSTEM_NAMESPACE, "--create-namespace"]
        + [*files, *extra, "--wait", "--timeout", "8m"]
    )


def _run_shown(command: list[str]) -> str:
    """Runs a command, shows what it prints as it prints it, and returns that."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        print(f"        {line}", end="", flush=True)
        lines.append(line)
    if process.wait():
        raise StoryFailedError(f"`{' '.join(command[:4])} …` exited with {process.returncode}")
    return "".join(lines)
