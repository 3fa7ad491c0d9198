"""A rollout with an experiment as a step, by a whole operator process on a real API server."""

from pathlib import Path

from learnloop_operator.kube.kinds import DEPLOYMENT, MODEL_DEPLOYMENT
from testing.operators.crash_world import NAME, model, revision
from testing.operators.operator_processes import live_world

GUEST = {"name": "other", "weight": 20, **model(2)}
STEPS = [
    {"weight": 10, "minEpisodes": 6},
    {"weight": 30, "minEpisodes": 6, "experiment": {"arms": [GUEST], "minEpisodes": 50, "maxEpisodes": 100_000}},
    {"weight": 100, "minEpisodes": 6},
]


async def test_the_guest_that_is_proven_best_serves_in_the_end_and_the_spec_is_untouched(
    api_server: Path, tmp_path: Path
) -> None:
    async with live_world(api_server, tmp_path) as world:
        operator = await world.operator()
        await world.user.patch(MODEL_DEPLOYMENT, world.namespace, NAME, {"spec": {"rollout": {"steps": STEPS}}})
        world.traffic.quality |= {revision(0): 0.6, revision(2): 0.95}
        await world.serves(0)
        await world.wish(1, 0.6)
        running = await world.until(
            "three arms", lambda status: (status.get("experiment") or {}).get("phase") == "Running"
        )
        assert running["stepText"] == "2/3 experiment"
        assert {arm["name"]: arm["weight"] for arm in running["experiment"]["arms"]} == {
            "stable": 50,
            "canary": 30,
            "other": 20,
        }
        status = await world.serves(2)
        assert (status["experiment"]["winner"], status["experiment"]["promotedOver"]) == ("other", revision(1))
        body = await world.object()
        assert body["spec"]["model"] == model(1)
        await world.end_state()
        (left,) = await world.user.list(DEPLOYMENT, world.namespace)
        assert left["metadata"]["name"] == f"{NAME}-{revision(2)}"
        weights = [{arm.revision: arm.weight for arm in table.arms} for table in world.tables]
        assert {revision(0): 50, revision(1): 30, revision(2): 20} in weights
        assert operator.codes == []
        generations = [table.generation for table in world.tables]
        assert generations == sorted(set(generations)), "a routing table came back"
