"""What one pod takes of a quota, as the API server counts it."""

from typing import Any

import pytest

from learnloop_operator.core.coordination.pod_needs import needs_of
from learnloop_operator.core.quantities import text


def container(requests: str, limits: str | None = None, **more: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": requests}, **({"limits": {"cpu": limits}} if limits else {})}
    return {"name": "c", "resources": resources, **more}


STAYS = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("pod", "told"),
    [
        ({"containers": [container("1"), container("500m")]}, "1500m"),
        ({"containers": [container("1")], "initContainers": [container("3")]}, "3"),
        ({"containers": [container("1")], "initContainers": [container("500m", **STAYS)]}, "1500m"),
        ({"containers": [container("1")], "initContainers": [container("2", **STAYS), container("2")]}, "4"),
        ({"containers": [container("1")], "initContainers": [container("2"), container("2", **STAYS)]}, "3"),
        ({"containers": [container("1")], "overhead": {"cpu": "250m"}}, "1250m"),
        ({"containers": [container("1"), {"name": "x"}], "resources": {"requests": {"cpu": "4"}}}, "4"),
    ],
)
def test_sidecars_first_steps_overhead_and_the_pod_as_a_whole_are_counted(pod: dict[str, Any], told: str) -> None:
    assert text(needs_of(pod, ())["requests.cpu"]) == told


def test_what_one_container_does_not_name_is_not_known_for_the_pod() -> None:
    silent = {"containers": [container("1", "2")], "initContainers": [{"name": "x", **STAYS}]}
    assert set(needs_of(silent, ())) == {"pods"}
    bounds = {"spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]}}
    assert text(needs_of(silent, (bounds,))["limits.cpu"]) == "3"


def test_overhead_is_no_limit_where_the_containers_have_none() -> None:
    found = needs_of({"containers": [container("1")], "overhead": {"cpu": "250m", "memory": "64Mi"}}, ())
    assert "limits.cpu" not in found
    assert text(found["requests.memory"]) == "64Mi"
