"""Prometheus' metrics of agents after their episodes were rewarded."""

from prometheus_client.parser import text_string_to_metric_families

from learnloop_dataplane.telemetry import agent_metrics

from ..conftest import POLICY, Api, eventually, trajectory

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def _scraped(api: Api) -> Series:
    text = (await api.call("GET", "/metrics")).text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(({"namespace": "team-a"} | labels).items())


async def test_rewards_are_told_raw_and_by_model_version(api: Api) -> None:
    await api.call("PUT", "/api/v1/rewards/policies/plain/revisions/r1", json=POLICY)
    await api.call("PUT", "/api/v1/agents/walker", json={"reward_policy": "plain", "reward_policy_revision": "r1"})
    for index, (version, value) in enumerate((("old", 0.0), ("old", 10.0), ("new", 20.0), ("new", 20.0))):
        body = trajectory(f"t{index}", "walker", value, policy_revision=version)
        await api.call("POST", "/api/v1/trajectories", 202, json=body)
    last = _key("agent_rl_trajectory_reward_count", agent="walker", model_version="new")

    async def rewarded() -> Series | None:
        figures = await _scraped(api)
        whole = figures.get(_key("average_reward", agent="walker")) == 1.0
        return figures if figures.get(last) == 2.0 and whole else None

    figures = await eventually(rewarded, 30.0)
    history = (await api.call("GET", "/api/v1/rewards/history", params={"agent_id": "walker"}))["rewards"]
    raw = {item["trajectory_id"]: item["raw_reward"] for item in history}
    old, new = (raw["t0"] + raw["t1"]) / 2, (raw["t2"] + raw["t3"]) / 2
    assert new > old
    for version, mean in (("old", old), ("new", new)):
        labels = {"agent": "walker", "model_version": version}
        assert figures[_key("agent_rl_model_reward_mean", **labels)] == mean
        assert figures[_key("agent_rl_trajectory_reward_count", **labels)] == 2.0
        assert figures[_key("agent_rl_model_error_rate", **labels)] == 0.0
        assert figures[_key("agent_rl_trajectories_collected_total", **labels)] == 2.0
    assert figures[_key("task_success_rate", agent="walker")] == 0.75


async def test_agents_that_nobody_rewards_count_too_and_so_does_what_is_refused(api: Api) -> None:
    await api.call("POST", "/api/v1/trajectories", 202, json=trajectory("e1", "stranger", policy_revision="gpt"))
    await api.call("POST", "/api/v1/trajectories", 422, json=trajectory("e2", "stranger", steps=[]))

    async def counted() -> Series | None:
        figures = await _scraped(api)
        return figures if _key("agent_rl_model_error_rate", agent="stranger", model_version="gpt") in figures else None

    figures = await eventually(counted, 30.0)
    assert figures[_key("agent_rl_trajectories_collected_total", agent="stranger", model_version="gpt")] == 1.0
    assert figures[_key("agent_rl_trajectory_collection_errors_total", reason="invalid")] == 1.0
    assert _key("average_reward", agent="stranger") not in figures
    up = [value for (name, _), value in figures.items() if name == "learnloop_nats_up"]
    assert up in ([], [1.0]), "none where the service has no NATS"


async def test_what_another_replica_wrote_is_told_here_a_moment_later(api, monkeypatch):
    monkeypatch.setattr(agent_metrics, "STALE_SECONDS", 0.2)
    await api.call("POST", "/api/v1/trajectories", 202, json=trajectory("shared-1", "shared", 20.0))

    async def share_is(wanted: float) -> bool:
        return (await _scraped(api)).get(_key("task_success_rate", agent="shared")) == wanted

    await eventually(lambda: share_is(1.0), 30.0)
    async with api.db.tenant("team-a") as connection:
        await connection.execute("UPDATE trajectories SET success = false WHERE agent_id = 'shared'")
    await eventually(lambda: share_is(0.0), 30.0)
