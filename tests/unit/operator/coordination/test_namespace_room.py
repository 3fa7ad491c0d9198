"""Room for all pods of a gang or for none, reckoned as the API server admits pods."""

from dataclasses import replace
from typing import Any

import pytest

from learnloop_operator.core.coordination.namespace_room import NamespaceRoom, PodGroup


def quota(hard: dict[str, Any], used: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    status = {"hard": hard, "used": used or {}}
    return {"metadata": {"name": "tight"}, "spec": {"hard": hard, **spec}, "status": status}


def pods(count: int, *, resources: dict[str, Any] | None = None, **spec: Any) -> PodGroup:
    return PodGroup({"containers": [{"name": "c", "resources": resources or {}}], **spec}, count)


CPU = {"requests": {"cpu": "500m", "memory": "256Mi"}}


@pytest.mark.parametrize(
    ("hard", "used", "count", "told"),
    [
        ({"pods": "5"}, {"pods": "2"}, 3, ""),
        ({"pods": "5"}, {"pods": "3"}, 3, "ResourceQuota tight: 3 of 5 pods are used, and 3 pods ask for 3"),
        ({"cpu": "2"}, {"cpu": "1"}, 3, "1 of 2 cpu are used, and 3 pods ask for 1500m"),
        ({"requests.cpu": "2"}, {"requests.cpu": "500m"}, 3, ""),
        ({"requests.memory": "1Gi"}, {"requests.memory": "512Mi"}, 3, "512Mi of 1Gi requests.memory are used"),
        ({"pods": "2"}, {}, 3, "more than it ever has: ask for less, or raise it"),
        ({"services": "0", "requests.storage": "0", "count/secrets": "0"}, {}, 3, ""),
        ({"requests.nvidia.com/gpu": "2"}, {}, 3, ""),
        ({"limits.memory": "8Gi"}, {}, 1, "so each pod must name it: set spec.pod.resources.limits.memory"),
    ],
)
def test_a_gang_fits_whole_or_the_quota_is_named_with_its_figures(
    hard: dict[str, str], used: dict[str, str], count: int, told: str
) -> None:
    why = NamespaceRoom((quota(hard, used),)).lacks(pods(count, resources=CPU))
    assert (told in why) if told else why == ""


def test_gpus_are_counted_by_their_limit_which_is_their_request() -> None:
    room = NamespaceRoom((quota({"requests.nvidia.com/gpu": "4"}, {"requests.nvidia.com/gpu": "2"}),))
    assert "2 of 4 requests.nvidia.com/gpu are used, and 3 pods ask for 3" in room.lacks(
        pods(3, resources={"limits": {"nvidia.com/gpu": 1}})
    )
    assert room.lacks(pods(2, resources={"limits": {"nvidia.com/gpu": 1}})) == ""


def test_what_other_gangs_were_promised_is_taken() -> None:
    room = NamespaceRoom((quota({"pods": "6"}, {"pods": "1"}),), promised=(pods(3),))
    assert room.lacks(pods(2)) == ""
    assert "3 are promised to gangs that begin, and 3 pods ask for 3" in room.lacks(pods(3))


def test_a_limit_range_fills_in_what_a_pod_does_not_say() -> None:
    bounds = {"spec": {"limits": [{"type": "Container", "default": {"memory": "2Gi"}, "defaultRequest": {"cpu": "1"}}]}}
    tight = quota({"limits.memory": "5Gi", "requests.cpu": "10"}, {"limits.memory": "1Gi", "requests.cpu": "0"})
    room = NamespaceRoom((tight,), (bounds,))
    assert room.lacks(pods(2)) == ""
    assert "1Gi of 5Gi limits.memory are used, and 3 pods ask for 6Gi" in room.lacks(pods(3))


@pytest.mark.parametrize(
    ("scope", "pod", "counts"),
    [
        ({"scopes": ["Terminating"]}, {}, False),
        ({"scopes": ["NotTerminating"]}, {}, True),
        ({"scopes": ["BestEffort"]}, {}, True),
        ({"scopes": ["BestEffort"]}, {"resources": CPU}, False),
        ({"scopes": ["NotBestEffort"]}, {"resources": CPU}, True),
        ({"scopes": ["BestEffort"]}, {"resources": {"limits": {"nvidia.com/gpu": 1}}}, True),
        ({"scopes": ["NotBestEffort"]}, {"resources": {"requests": {"cpu": "0"}}}, False),
        ({"scopes": ["BestEffort"]}, {"initContainers": [{"name": "i", "resources": CPU}]}, False),
        ({"scopeSelector": ["In", ["low"]]}, {"priorityClassName": "low"}, True),
        ({"scopeSelector": ["In", ["low"]]}, {}, False),
        ({"scopeSelector": ["NotIn", ["low"]]}, {"priorityClassName": "low"}, False),
        ({"scopeSelector": ["Exists", []]}, {"priorityClassName": "low"}, True),
        ({"scopeSelector": ["DoesNotExist", []]}, {}, True),
    ],
)
def test_a_quota_with_scopes_counts_only_their_pods(scope: dict[str, Any], pod: dict[str, Any], counts: bool) -> None:
    if "scopeSelector" in scope:
        operator, values = scope["scopeSelector"]
        chosen = {"scopeName": "PriorityClass", "operator": operator, "values": values}
        scope = {"scopeSelector": {"matchExpressions": [chosen]}}
    why = NamespaceRoom((quota({"pods": "0"}, **scope),)).lacks(pods(1, **pod))
    assert bool(why) == counts


def test_what_a_limit_range_fills_in_makes_a_pod_ask_for_something() -> None:
    bounds = {"spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "100m"}}]}}
    room = NamespaceRoom((quota({"pods": "0"}, scopes=["BestEffort"]),), (bounds,))
    assert room.lacks(pods(1)) == ""


def test_the_objects_that_make_the_pods_are_counted_too() -> None:
    job = replace(pods(3), objects=("count/jobs.batch",))
    assert NamespaceRoom((quota({"count/jobs.batch": "2"}, {"count/jobs.batch": "1"}),)).lacks(job) == ""
    full = NamespaceRoom((quota({"count/jobs.batch": "2"}, {"count/jobs.batch": "2"}),))
    assert full.lacks(job) == "ResourceQuota tight: 2 of 2 count/jobs.batch are used, and 1 more is needed"
    assert full.lacks(pods(3)) == "", "of another backend"
    promised = NamespaceRoom((quota({"count/jobs.batch": "1"}),), promised=(job,))
    assert "1 are promised to gangs that begin, and 1 more is needed" in promised.lacks(job)
    never = NamespaceRoom((quota({"count/jobs.batch": "0"}),))
    assert "more than it ever has: ask for less, or raise it" in never.lacks(job)
