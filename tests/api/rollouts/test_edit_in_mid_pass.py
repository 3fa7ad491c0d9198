"""A user's edit that overtakes a write the operator has already decided on."""

import asyncio
import json
from collections import Counter
from itertools import pairwise

import pytest

from learnloop_operator.kube.kinds import MODEL_DEPLOYMENT
from learnloop_operator.reconcile.apply_plan import field_manager
from testing.operators.crash_rig import NAME, model, revision
from testing.operators.operator_processes import live_rig

DECISIONS = {"status": f"modeldeployments/{NAME}/status", "routing table": f"configmaps/{NAME}-routing"}


@pytest.mark.parametrize("overtaken", DECISIONS)
async def test_a_spec_edited_in_mid_pass_is_kept_and_the_next_pass_decides_on_it(api_server, tmp_path, overtaken):
    async with live_rig(api_server, tmp_path) as rig:
        operator = await rig.operator()
        proxy, held = operator.proxy, asyncio.Event()
        await rig.serves(0)

        async def user_first(number: int, side: str, method: str, path: str) -> None:
            # The write that puts the canary of model 1 before the first users; the user has changed their mind.
            about = revision(1) in proxy.bodies[number - 1].decode()
            if side == "before" and about and DECISIONS[overtaken] in path and not held.is_set():
                held.set()
                await rig.wish(2)

        proxy.on_write = user_first
        await rig.wish(1)
        status = await rig.serves(2)
        assert held.is_set()
        body = await rig.object()
        assert body["spec"]["model"] == model(2)
        assert body["metadata"]["generation"] == status["observedGeneration"] == 3
        managers = {item["manager"] for item in body["metadata"]["managedFields"] if "f:spec" in item["fieldsV1"]}
        assert field_manager(MODEL_DEPLOYMENT) not in managers
        written = [
            json.loads(text)["status"]
            for write, text in zip(proxy.writes, proxy.bodies, strict=True)
            if write.endswith("/status")
        ]
        observed = [item["observedGeneration"] for item in written]
        assert observed == sorted(observed)
        begun = Counter(
            (after["observedGeneration"], after["canary"]["revision"])
            for before, after in pairwise(written)
            if after.get("canary") and (before.get("canary") or {}).get("revision") != after["canary"]["revision"]
        )
        assert set(begun.values()) == {1}, begun
        assert begun[3, revision(2)] == 1
        promoted = [item["stable"]["revision"] for item in written if item.get("stable")]
        assert revision(1) not in promoted, "the model the user rolled back was promoted"
