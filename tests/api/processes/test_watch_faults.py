"""The whole operator process behind a proxy that spoils its watches: the rollout ends all the same."""

import asyncio
import json
import re
from pathlib import Path
from unittest.mock import patch

from testing.operators.crash_rig import revision
from testing.operators.operator_processes import live_rig
from testing.proxies.stream_proxy import PASSING, Cut, StreamProxy
from testing.waiting import until_true

SILENT_SECONDS = 8.0
"""Kopf's limit for a watch without an event or bookmark, shortened."""


def statuses(proxy: StreamProxy) -> list[dict]:
    """Every status the operator wrote, in order."""
    pairs = zip(proxy.writes, proxy.bodies, strict=True)
    return [json.loads(body)["status"] for write, body in pairs if re.match(r"PATCH modeldeployments/.*/status", write)]


async def test_lost_late_doubled_and_cut_watches_change_neither_the_way_nor_the_end(api_server, tmp_path):
    async with live_rig(api_server, tmp_path) as rig:
        operator = await rig.operator(seed=5)
        proxy = operator.proxy
        proxy.faults = PASSING
        await rig.serves(0)
        proxy.once["modeldeployments"] = "truncated"
        await rig.wish(1)
        await rig.serves(1)
        assert set(proxy.met) >= {*PASSING, "truncated"}, proxy.met
        assert operator.codes == [], operator.output[-2000:]
        written = statuses(proxy)
        generations = [table.generation for table in rig.tables]
        assert generations == sorted(set(generations)), "a routing table came back"
        observed = [status["observedGeneration"] for status in written]
        assert observed == sorted(observed), "a status was decided on an older spec than one before"
        weights = [status.get("weight", 0) for status in written if status["observedGeneration"] == 2]
        raised = [weight for weight in weights if weight]
        assert raised == sorted(raised), weights
        assert set(raised) >= {10, 25, 50, 100}, weights


async def test_a_new_process_whose_reads_are_of_the_past_takes_nothing_back(api_server: Path, tmp_path: Path) -> None:
    async with live_rig(api_server, tmp_path) as rig:
        operator = await rig.operator()
        await rig.serves(0)
        await operator.proxy.remember()
        await rig.wish(1)
        await rig.until("half of the episodes", lambda status: status.get("weight", 0) >= 50)
        operator.proxy.go_back()
        operator.kill()
        await rig.serves(1)
        assert operator.proxy.met["past"] >= 5, "it began with lists from before the rollout"
        assert operator.codes == [-9]
        weights = [status.get("weight", 0) for status in statuses(operator.proxy) if status["observedGeneration"] == 2]
        raised = [weight for weight in weights if weight]
        assert raised == sorted(raised), weights
        generations = [table.generation for table in rig.tables]
        assert generations == sorted(set(generations)), "a routing table came back"


async def test_a_process_waits_for_an_api_server_that_is_away_at_its_start(api_server: Path, tmp_path: Path) -> None:
    async with live_rig(api_server, tmp_path) as rig:
        operator = await rig.operator()
        await rig.serves(0)
        with patch.object(operator.proxy, "_answer", side_effect=Cut):
            operator.kill()
            await until_true(lambda: operator.output.count(": no answer from the API server") > 8)
        await rig.wish(1)
        await rig.serves(1)
        assert operator.codes == [-9], operator.output[-2000:]


async def test_a_silent_watch_is_opened_again_by_the_same_process(api_server: Path, tmp_path: Path) -> None:
    async with live_rig(api_server, tmp_path) as rig:
        hasty = {"reconcile.kopf_handlers.SILENT_SECONDS": SILENT_SECONDS}
        operator = await rig.operator(hasty=hasty)
        await rig.serves(0)
        assert await operator.ask("/healthz") == "ok"
        operator.proxy.stall("modeldeployments")
        await rig.wish(1)
        await asyncio.sleep(SILENT_SECONDS / 2)
        operator.proxy.wake(new_only=True)
        await rig.until("a canary", lambda status: _canary(status) == revision(1))
        assert operator.codes == []
        await rig.serves(1)


def _canary(status: dict) -> str:
    return str((status.get("canary") or {}).get("revision"))
