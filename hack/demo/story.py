"""The frame of every demo's story: a namespace of its own, an end that leaves nothing running, and its cost."""

import resource
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from cluster.full_cluster import halted_on_failure
from demo import afterwards, container_cluster, source_cluster
from demo.api import Api
from demo.describe import describe
from demo.narrator import StoryFailedError
from demo.settings import SOURCE, Settings

Figures = dict[str, float]


def run_story(api: Api, settings: Settings, story: Callable[[], Figures]) -> Figures:
    """The figures of the story, run in a fresh namespace. A failure says what the cluster looked like."""
    try:
        _fresh_namespace(api, settings)
        return story()
    except subprocess.CalledProcessError as error:
        output = (error.stderr or error.stdout or "").strip()
        reason = f"{' '.join(map(str, error.cmd[:6]))} …: {output}"
    except StoryFailedError as error:
        reason = str(error)
    state = describe(api)
    if not settings.keep:
        afterwards.suspend(api, settings)
    raise StoryFailedError(f"{state}\n{reason}")


def require(happened: bool, otherwise: str) -> None:
    """Raises StoryFailedError with `otherwise` unless it happened."""
    if not happened:
        raise StoryFailedError(otherwise)


def ended_on_failure(settings: Settings, kind: str | None) -> AbstractContextManager[None]:
    """A demo that fails leaves nothing of its own running; KEEP=1 leaves the cluster as it was when it failed."""
    if kind is None or settings.keep:
        return nullcontext()
    return halted_on_failure(source_cluster.state()) if kind == SOURCE else container_cluster.deleted_on_failure(kind)


def processor_seconds() -> float:
    """Cost of the build: the cluster's own processes have left this program's family, and are not in it."""
    used = [resource.getrusage(whom) for whom in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in used)


def _fresh_namespace(api: Api, settings: Settings) -> None:
    """The story starts from nothing; only the demo's own namespace is ever deleted."""
    api.run("delete", "namespace", settings.namespace, "--ignore-not-found", "--wait", "--timeout=120s")
    api.run("create", "namespace", settings.namespace)
    api.run("label", "namespace", settings.namespace, "pod-security.kubernetes.io/enforce=restricted")
