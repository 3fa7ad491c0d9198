"""A cluster of kind or k3d, made for the demo and named after the product."""

from collections.abc import Iterator
from contextlib import contextmanager

from demo.narrator import Narrator
from demo.running import run_shown
from demo.settings import KIND
from toolkit.commands import run
from toolkit.work_groups import cleaning_up

NAME = "learnloop"
TRAINING_OPERATOR = "github.com/kubeflow/training-operator.git/manifests/overlays/standalone?ref=v1.9.4"


def ensure(tool: str, narrator: Narrator) -> str:
    """Have the cluster, with the training operator in it. Returns its kubeconfig context.

    Raises CommandFailed when it cannot be made.
    """
    if exists(tool):
        narrator.say(f"{tool} has a cluster {NAME} already")
    elif tool == KIND:
        run_shown([tool, "create", "cluster", "--name", NAME, "--wait", "180s"])
    else:
        run_shown([tool, "cluster", "create", NAME, "--wait", "--timeout", "180s"])
    context = f"{tool}-{NAME}"
    kubectl = ["kubectl", "--context", context]
    narrator.say("installing the Kubeflow training operator")
    run_shown([*kubectl, "apply", "--server-side", "--force-conflicts", "-k", TRAINING_OPERATOR])
    run_shown(
        [*kubectl, "rollout", "status", "--namespace", "kubeflow", "deployment/training-operator", "--timeout", "300s"]
    )
    return context


def exists(tool: str) -> bool:
    """Whether there is a cluster of our name."""
    listed = run([tool, "get", "clusters"] if tool == KIND else [tool, "cluster", "list", "--no-headers"])
    return NAME in {line.split()[0] for line in listed.splitlines() if line.strip()}


@contextmanager
def deleted_on_failure(tool: str) -> Iterator[None]:
    """Nothing is left running by a demo that failed, unless the cluster was there before it."""
    was_there = exists(tool)
    try:
        yield
    except BaseException:
        with cleaning_up():
            if not was_there and exists(tool):
                run(removal(tool), grace_seconds=60)
        raise


def removal(tool: str) -> list[str]:
    """The command that removes the cluster."""
    return [tool, "delete", "cluster", "--name", NAME] if tool == KIND else [tool, "cluster", "delete", NAME]
