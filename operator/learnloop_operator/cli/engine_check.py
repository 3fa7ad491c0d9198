"""`engine check`: a short training by somebody's image shows whether it keeps to the engine contract."""

import secrets
import sys
from typing import Annotated

import typer

from learnloop_api.names import API_VERSION
from learnloop_operator.cli import objects, steering_verbs
from learnloop_operator.cli.cluster import Cluster

PAGE = "docs/reference/engines.md"


def engine(
    cluster: Cluster,
    action: Annotated[str, typer.Argument(help="check")],
    image: Annotated[str, typer.Argument(help="the engine's image")],
    command: Annotated[list[str], typer.Argument(help="its program with arguments; options of it after --")],
    environment: Annotated[str, typer.Option(help="what it learns; with --base ToolLookupEasy-v1")] = "",
    base: Annotated[str, typer.Option(metavar="URI", help="the base model that it trains")] = "",
    base_sha256: Annotated[str, typer.Option(help="the digest of its folder")] = "",
    steps: Annotated[int, typer.Option(min=1, help="how long")] = 2000,
    timeout: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="for all of it")] = 900.0,
) -> str:
    """Train by the image in a TrainingJob, which is deleted at the end.

    Raises:
        CommandError: the contract is broken, by what, and the fix; or the check has not ended in time.
    """
    if action != "check":
        raise objects.UsageError(f"engine {action}: write `kubectl learnloop engine check IMAGE COMMAND`")
    if bool(base) != bool(base_sha256):
        raise objects.UsageError("--base and --base-sha256 name a base model together: give both, or neither")
    data: dict[str, object] = {"environment": environment or ("ToolLookupEasy-v1" if base else "CartPole-v1")}
    if base:
        data["languageModel"] = {"base": {"uri": base, "sha256": base_sha256}}
    name = f"engine-check-{secrets.token_hex(3)}"
    spec = {
        "algorithm": "custom",
        "engine": "image",
        "totalSteps": steps,
        "data": data,
        "evaluation": {"episodes": 16},
        "gates": {"significant": False},
        "maxAttempts": 1,
        "pod": {"image": image, "command": list(command)},
    }
    job = {"apiVersion": API_VERSION, "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec}
    cluster.create("trainingjobs", job)
    try:
        steering_verbs.verdict(cluster, "", name, timeout)
        status = objects.status_of(cluster.get("trainingjobs", name))
    except objects.CommandError as error:
        if not str(error).startswith(f"{name} Failed"):
            raise  # no answer, or no end in time: that says nothing about the engine
        raise objects.CommandError(f"{image} does not keep to {PAGE}: {error}") from None
    finally:
        _delete(cluster, name)
    mean, before = (objects.number((status.get(what) or {}).get("mean")) for what in ("evaluation", "baseline"))
    against = "the base" if base else "chance"
    return f"{image} keeps to {PAGE}: after {status.get('step')} steps it returns {mean}, {against} {before}"


def _delete(cluster: Cluster, name: str) -> None:
    try:
        cluster.delete("trainingjobs", name)
    except objects.CommandError as error:
        print(f"TrainingJob {name} is left: {error}", file=sys.stderr)
