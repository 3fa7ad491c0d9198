"""Two whole operator processes of two installations over one namespace, by mistake: one acts, the other says so."""

import time
from pathlib import Path

import pytest

from learnloop_operator.adapters.kube.kinds import LEASE
from learnloop_operator.adapters.leadership.namespace_claims import NAME
from testing.operators.operator_processes import live_world

CLAIMS = "leadership.namespace_claims"
SHORT = {
    f"{CLAIMS}.CLAIM_SECONDS": 10.0,
    f"{CLAIMS}.FENCE_SECONDS": 7.0,
    f"{CLAIMS}.RENEW_SECONDS": 2.0,
    f"{CLAIMS}.CHECK_SECONDS": 0.5,
}
"""The proportions of the claim's own times."""


@pytest.mark.parametrize("mode", ["service", "gateway"])
async def test_of_two_installations_one_acts_until_it_is_dead_and_its_claim_has_run_out(
    api_server: Path, tmp_path: Path, mode: str
) -> None:
    async with live_world(api_server, tmp_path, mode) as world:
        first = await world.operator(hasty=SHORT)
        await world.serves(0)
        second = await world.operator(hasty=SHORT)
        await world.wish(1)
        await world.until("a canary", lambda status: bool(status.get("weight")))
        await world.until_asked(second, "/readyz", f"another installation works here: {world.namespace} is")
        assert second.proxy.writes == [], "two installations wrote"
        assert await first.ask("/readyz") == "ok"

        first.given_up = True
        first.kill()
        written, died = len(first.proxy.writes), time.monotonic()
        await world.until("a second writer", lambda _: bool(second.proxy.writes))
        assert time.monotonic() - died >= SHORT[f"{CLAIMS}.CLAIM_SECONDS"] - SHORT[f"{CLAIMS}.FENCE_SECONDS"]
        await world.serves(1)
        lease = await world.user.get(LEASE, world.namespace, NAME)
        assert lease["spec"]["holderIdentity"].startswith(f"{second.system}/")
        assert len(first.proxy.writes) == written
        assert await second.ask("/readyz") == "ok"
        generations = [table.generation for table in world.tables]
        assert generations == sorted(set(generations)), "a routing table came back"
