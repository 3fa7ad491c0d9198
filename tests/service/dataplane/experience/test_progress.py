"""The figures of an agent by week, counted from what is stored, and from no other agent's."""

from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from learnloop_api.wire.deployment import ModelDeployed
from learnloop_dataplane.postgres.database import Database

from ..conftest import Api, measured, running, settings, superuser, trajectory


async def _play(
    api: Api, identity: str, value: float, revision: str = "aaaa", agent: str = "walker", deployment: str = "walk"
) -> None:
    body = trajectory(identity, agent, value, model_deployment=deployment, policy_revision=revision)
    body["outcome"]["values"] = {"turns": 4.0}
    await api.call("POST", "/api/v1/trajectories", 202, json=body)


async def _sql(db: Database, *statements: str) -> None:
    async with db.tenant("team-a") as connection:
        for statement in statements:
            await connection.execute(statement)


async def _weeks(api: Api, agent: str = "walker", **kwargs) -> list[dict]:
    return list((await api.call("GET", f"/api/v1/agents/{agent}/progress", **kwargs))["weeks"])


async def test_success_time_turns_satisfaction_and_deployments_are_counted_by_week(api: Api) -> None:
    assert await _weeks(api) == []
    for index in range(12):
        await _play(api, f"old-{index}", 10.0 if index % 2 else 1.0)
        await _play(api, f"good-{index}", 20.0, "bbbb")
        await _play(api, f"bad-{index}", 1.0, "cccc")
    await _play(api, "other", 10.0, agent="runner")
    await api.call("POST", "/api/v1/feedback", json={"trajectory_id": "old-1", "user_id": "ann", "stars": 5})
    await _sql(api.db, "UPDATE trajectories SET received_at = now() - interval '7 days' WHERE agent_id = 'walker'")
    event = {
        "model_deployment": "walk",
        "revision": "aaaa",
        "uri": "uniform://discrete/2?observations=4",
        "deployed_at": "2026-01-31T12:00:00Z",
    }
    await api.call("PUT", "/api/v1/models/walk/deployed", json=event)
    [week] = await _weeks(api)
    assert (week["episodes"], week["rated"], week["satisfaction"]) == (36, 1, 1.0)
    assert week["success_rate"] == pytest.approx((6 + 12) / 36)
    assert (week["turns"], week["completion_seconds"]) == (4.0, 1.0)
    assert (week["promotions"], week["rollbacks"]) == (0, 0), "neither a first model nor silence counts"
    assert week["deployment_success_rate"] is None
    await _play(api, "new-1", 10.0)
    await measured(api, 'learnloop_feedback_given_total{agent="walker",namespace="team-a",opinion="positive"} 1.0')
    old, new = await _weeks(api)
    assert (old["episodes"], new["episodes"], new["success_rate"]) == (36, 1, 1.0)
    assert old["week"] < new["week"]
    assert len(await _weeks(api, params={"weeks": 1})) == 1
    assert await _weeks(api, namespace="team-b") == []
    await api.call("GET", "/api/v1/agents/walker/progress", 422, params={"weeks": 0})


async def test_trainings_that_handed_in_a_policy_and_what_they_gained(api: Api) -> None:
    proof = '{"agent": "coach", "evaluation": {"mean": 120.0}, "baseline": {"mean": 100.0}}'
    insert = "INSERT INTO training_runs (namespace, job, proof, heartbeat, beat_at) VALUES ('team-a', "
    await _sql(
        api.db,
        f"{insert} 'coach-1', '{proof}', NULL, now())",
        f"{insert} 'coach-2', NULL, '{{\"phase\": \"failed\"}}', now())",
        f"{insert} 'coach-3', NULL, '{{\"phase\": \"training\"}}', now())",
        f"{insert} 'other-1', NULL, '{{\"phase\": \"failed\"}}', now())",
    )
    [week] = await _weeks(api, "coach")
    assert (week["episodes"], week["trainings"], week["training_success_rate"]) == (0, 2, 0.5)
    assert week["gain_per_training"] == pytest.approx(20.0), "in units of return: a baseline near 0 says nothing"


async def _moved(
    api: Api, deployment: str, event: str, revision: str, previous: str | None = None, days: int = 0
) -> None:
    outcome = {
        "event": event,
        "model_deployment": deployment,
        "revision": revision,
        "previous_revision": previous,
        "uri": "uniform://discrete/2?observations=4",
        "deployed_at": (datetime.now(UTC) - timedelta(days=days)).isoformat(),
    }
    await api.call("PUT", f"/api/v1/models/{deployment}/{event.replace('_', '-')}", json=outcome)


async def _recorded(api: Api, deployment: str, since: datetime) -> tuple[int, int]:
    """Promotions and rollbacks on the record of the deployment."""
    record = (await api.call("GET", f"/api/v1/models/{deployment}/deployed"))["deployed"]
    outcomes = [one.outcome for one in map(ModelDeployed.model_validate, record) if one.deployed_at >= since]
    return outcomes.count("promotions"), outcomes.count("rollbacks")


async def test_the_record_and_the_progress_count_the_same_promotions_and_rollbacks(api: Api) -> None:
    """Also a revision that was not played for a day, one that was tried again, and one that served before."""
    for index in range(12):
        await _play(api, f"base-{index}", 5.0, "aaaa", "guarded", "guard")
        await _play(api, f"better-{index}", 20.0, "bbbb", "guarded", "guard")
        await _play(api, f"silent-{index}", 1.0, "cccc", "guarded", "guard")
    await _sql(
        api.db,
        "UPDATE trajectories SET received_at = now() - interval '3 days' "
        "WHERE agent_id = 'guarded' AND policy_revision = 'cccc'",
    )
    moves = [
        ("deployed", "aaaa", None, 20),
        ("deployed", "bbbb", "aaaa", 15),
        ("rolled_back", "bbbb", "aaaa", 14),
        ("deployed", "aaaa", None, 14),
        ("deployed", "bbbb", "aaaa", 0),
        ("rolled_back", "dddd", "bbbb", 0),
    ]
    for event, revision, previous, days in moves:
        await _moved(api, "guard", event, revision, previous, days)
    weeks = await _weeks(api, "guarded")
    counted = tuple(sum(week[name] for week in weeks) for name in ("promotions", "rollbacks"))
    assert counted == await _recorded(api, "guard", datetime.min.replace(tzinfo=UTC)) == (2, 2)
    assert sum(week["false_rollbacks"] for week in weeks) == 1, "bbbb did better than what it was compared with"
    [week] = await _weeks(api, "guarded", params={"weeks": 1})
    monday = datetime.combine(datetime.now(UTC).date(), time(), UTC) - timedelta(days=datetime.now(UTC).weekday())
    assert (week["promotions"], week["rollbacks"]) == await _recorded(api, "guard", monday) == (1, 1)


async def test_moves_of_a_rollout_that_no_episode_names_count_for_the_agent_of_its_name(api: Api) -> None:
    await _moved(api, "unplayed", "rolled_back", "bbbb", "aaaa")
    [week] = await _weeks(api, "unplayed")
    assert (week["episodes"], week["rollbacks"], week["false_rollbacks"]) == (0, 1, 0)


def _ended(job: str, phase: str, **changes) -> dict:
    figures = {"episodes": 100, "iqm": 0.0, "ci_low": 0.0, "ci_high": 0.0}
    outcome = {
        "job": job,
        "job_uid": f"uid-of-{job}",
        "agent": "trainee",
        "attempt": 0,
        "step": 10,
        "total_steps": 10,
        "world_size": 1,
        "steps_per_second": 1.0,
        "progress": 1.0,
        "phase": phase,
        "status": "completed" if phase == "validated" else "failed",
        "at": "2026-01-31T12:00:00Z",
    }
    if phase != "failed":
        outcome |= {"evaluation": {**figures, "mean": 150.0}, "baseline": {**figures, "mean": 100.0}}
        outcome |= {"artifact": {"uri": "learnloop://team-a/" + "0" * 64, "sha256": "0" * 64}}
    return outcome | changes


async def test_runs_that_the_history_has_forgotten_are_counted_still_and_none_twice(api: Api) -> None:
    proof = '{"agent": "trainee", "evaluation": {"mean": 150.0}, "baseline": {"mean": 100.0}}'
    for job, phase in (("trainee-1", "validated"), ("trainee-2", "rejected"), ("trainee-3", "failed")):
        values = f"'{proof}', NULL" if phase != "failed" else 'NULL, \'{"phase": "failed"}\''
        insert = "INSERT INTO training_runs (namespace, job, proof, heartbeat, beat_at)"
        await _sql(api.db, f"{insert} VALUES ('team-a', '{job}', {values}, now())")
        cost = {"cpu_hours": 2.0, "gpu_hours": 0.5 if job == "trainee-1" else 0.0, "money": 3.0, "currency": "EUR"}
        await api.call("PUT", f"/api/v1/training/runs/{job}/status", json=_ended(job, phase, cost=cost))
    await api.call("PUT", "/api/v1/training/runs/x-1/status", json=_ended("x-1", "failed", agent="runner"))
    whole = await _weeks(api, "trainee")
    assert [(week["trainings"], week["gains"]) for week in whole] == [(3, 2)]
    assert whole[0]["training_success_rate"] == pytest.approx(1 / 3), "as the report counts: a refused run is none"
    assert whole[0]["gain_per_training"] == pytest.approx(50.0)
    costs = ("cpu_hours", "gpu_hours", "money", "currency", "gain_per_hour")
    assert [whole[0][name] for name in costs] == [6.0, 0.5, 9.0, "EUR", 100.0], "one gained 50, for half a GPU-hour"
    for currency, phase in (("CHF", "failed"), ("EUR", "validated")):
        cost = {"cpu_hours": 1.0, "gpu_hours": 0.0, "money": 3.0, "currency": currency}
        ended = _ended(f"y-{phase}", phase, cost=cost, agent="twice")
        await api.call("PUT", f"/api/v1/training/runs/y-{phase}/status", json=ended)
    [week] = await _weeks(api, "twice")
    assert [week[name] for name in costs] == [2.0, 0.0, None, None, 25.0], "50 in two CPU-hours"
    for job in ("trainee-1", "trainee-3"):
        await api.call("DELETE", f"/api/v1/training/runs/{job}", 204)
    assert await _weeks(api, "trainee") == whole


async def test_a_run_that_nobody_could_judge_gained_nothing_that_is_known(api: Api) -> None:
    proof = '{"agent": "unjudged", "evaluation": {"mean": 0.0, "episodes": 0}, "baseline": {"mean": 100.0}}'
    insert = "INSERT INTO training_runs (namespace, job, proof, beat_at) VALUES"
    await _sql(api.db, f"{insert} ('team-a', 'unjudged-1', '{proof}', now())")
    [week] = await _weeks(api, "unjudged")
    assert (week["trainings"], week["training_success_rate"]) == (1, 1.0)
    assert (week["gains"], week["gain_per_training"]) == (0, None)


async def test_weeks_begin_on_monday_in_utc_whatever_the_databases_time_zone(dsn: str, tmp_path: Path) -> None:
    zone, now = ZoneInfo("America/New_York"), datetime.now(UTC)
    monday = datetime.combine(now.date() - timedelta(days=now.weekday()), time(), UTC)
    past = ((weeks, monday - timedelta(weeks=weeks - 1)) for weeks in range(2, 53))
    weeks, begins = next(  # the clocks were changed since
        (count, day) for count, day in past if day.astimezone(zone).utcoffset() != monday.astimezone(zone).utcoffset()
    )
    async with superuser(dsn) as connection:
        name = await connection.fetchval("SELECT current_database()")
        await connection.execute(f"ALTER DATABASE {name} SET TimeZone = '{zone.key}'")
    try:
        async with running(**settings(dsn, tmp_path)) as api:
            for identity, moment in (
                ("before", begins - timedelta(minutes=30)),
                ("in", begins + timedelta(minutes=30)),
            ):
                await _play(api, identity, 10.0, agent="sleeper")
                set_ = f"UPDATE trajectories SET received_at = '{moment.isoformat()}'"
                await _sql(api.db, f"{set_} WHERE agent_id = 'sleeper' AND trajectory_id = '{identity}'")
            counts = await _weeks(api, "sleeper", params={"weeks": weeks})
            assert [(week["week"], week["episodes"]) for week in counts] == [(begins.date().isoformat(), 1)]
    finally:
        async with superuser(dsn) as connection:
            await connection.execute(f"ALTER DATABASE {name} RESET TimeZone")
