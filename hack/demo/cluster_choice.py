"""The demo's cluster: the user's own, one in containers where that is possible, or one made from source."""

import shutil
from dataclasses import dataclass

from demo.settings import K3D, KIND, SOURCE, Settings
from toolkit.commands import succeeds
from toolkit.errors import Refusal

CLIENTS = ("kubectl", "helm")
ENGINE_ANSWERS = ["timeout", "20", "docker", "info"]


@dataclass(frozen=True)
class Choice:
    """`kind` is source, kind, k3d, or None for the user's own context; `why` is a sentence for the user."""

    kind: str | None
    why: str


def choose(settings: Settings) -> Choice:
    """Look at what there is.

    Raises Refusal when CLUSTER asks for kind or k3d, and something that it needs is missing.
    """
    if settings.context:
        return Choice(None, f"your own cluster, context {settings.context}")
    if settings.cluster == SOURCE:
        return Choice(SOURCE, "a Kubernetes made from source on this machine, as CLUSTER=source asks")
    wanted = (settings.cluster,) if settings.cluster else (KIND, K3D)
    missing = _missing(wanted)
    if not missing:
        tool = next(name for name in wanted if shutil.which(name))
        how = f"as CLUSTER={tool} asks" if settings.cluster else "found with a Docker engine that answers"
        return Choice(tool, f"a {tool} cluster, {how} (CLUSTER=source builds a Kubernetes from source instead)")
    if settings.cluster:
        raise Refusal(f"CLUSTER={settings.cluster} needs {missing}. Install it, or leave CLUSTER out.")
    return Choice(SOURCE, f"a Kubernetes made from source on this machine, for kind or k3d would need {missing}")


def _missing(wanted: tuple[str, ...]) -> str:
    """The missing parts of a cluster in containers; empty when nothing. A client without an engine is not enough."""
    if not any(shutil.which(name) for name in wanted):
        return " or ".join(wanted) + " on PATH"
    for client in CLIENTS:
        if not shutil.which(client):
            return f"{client} on PATH"
    if not shutil.which("docker") or not succeeds(ENGINE_ANSWERS):
        return "a Docker engine that answers `docker info`"
    return ""
