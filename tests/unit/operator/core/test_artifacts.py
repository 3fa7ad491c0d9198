"""Artifacts in use are reported as the cluster has them, and not at all when that cannot be seen."""

import asyncio
import json
from contextlib import suppress

import pytest

from learnloop_operator.core.artifacts import in_use
from learnloop_operator.data_plane_client import DataPlane
from learnloop_operator.kube.errors import KubeError
from learnloop_operator.kube.fenced_client import KubeClient
from learnloop_operator.reconcile.apply_plan import ArtifactUsageReporter

A, B, C, D, E = ("a" * 64, "b" * 64, "c" * 64, "d" * 64, "e" * 64)


def deployment() -> dict:
    return {
        "metadata": {"name": "md", "annotations": {"note": f"learnloop://ns/{D}"}},
        "spec": {"model": {"uri": f"learnloop://ns/{A}"}},
        "status": {
            "stable": {"uri": "https://models/x.onnx", "sha256": B},
            "lastStable": {"uri": f"learnloop://ns/{C}", "sha256": C},
        },
    }


def policy() -> dict:
    evaluator = {"type": "reward-model", "rewardModel": {"sha256": E}}
    return {"metadata": {"name": "rp"}, "spec": {"components": [{"name": "liked", "evaluator": evaluator}]}}


def job(name: str, **status: str) -> dict:
    return {"metadata": {"name": name}, "spec": {}, "status": status}


def test_the_model_wished_for_the_one_that_serves_and_the_one_to_undo_to_are_in_use() -> None:
    going, ended = job("going"), job("ended", finishedAt="2026-01-01T00:00:00Z")
    for one, digest in ((going, D), (ended, E)):
        one["spec"] = {"safety": {"fallbackPolicy": {"uri": f"learnloop://ns/{digest}", "sha256": digest}}}
    call = in_use([deployment()], [going, ended])
    assert call.body == {"sha256": [A, B, C, D], "jobs": ["going"]}


def test_more_than_can_be_told_is_not_told_in_part() -> None:
    with pytest.raises(ValueError, match="nothing is deleted"):
        in_use([], [job(f"j{number}") for number in range(20_001)])


async def test_each_namespace_is_told_and_one_that_cannot_be_seen_is_not(wire, kube: KubeClient) -> None:
    wire.answer(200, {"metadata": {"resourceVersion": "1"}, "items": [deployment()]})
    wire.answer(200, {"metadata": {"resourceVersion": "1"}, "items": []})
    wire.answer(200, {"metadata": {"resourceVersion": "1"}, "items": [policy()]})
    wire.answer(200, {"metadata": {"resourceVersion": "1"}, "items": [job("going")]})
    wire.answer(200, {})
    data_plane = DataPlane(wire.url, "/nonexistent")
    keeper = ArtifactUsageReporter(kube, data_plane, lambda: ["ns"])
    await keeper.tell("ns")
    method, path, body = wire.requests[-1]
    assert (method, path) == ("PUT", "/api/v1/artifacts/in-use")
    assert json.loads(body) == {"sha256": [A, B, C, E], "jobs": ["going"]}
    wire.script[:] = []
    wire.answer(403, {"message": "no"})
    count = len([path for _, path, _ in wire.requests if path.endswith("in-use")])
    with pytest.raises(KubeError):
        await keeper.tell("ns")
    running = asyncio.create_task(keeper.run(first=0.0, every=0.01))
    await asyncio.sleep(0.1)
    assert not running.done(), "a refusal does not stop it"
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await data_plane.close()
    assert len([path for _, path, _ in wire.requests if path.endswith("in-use")]) == count
