"""`python -m bench.pipeline.dry_run`: dry-runs over a logged history on a real PostgreSQL; one JSON object at the end.

Two policies: one that needs only what is known of an episode, and one that reads its ten steps too. Processor time is
that of this process and of the server's backends together, so that the figures hold for one core whoever shares it.
"""

import asyncio
import json
import os
import resource
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg

from bench.arguments import numbers
from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.postgres.migrate import migrate
from learnloop_dataplane.rewards.dry_run import DryRun, Window
from testing.servers.data_plane_process import postgres

EPISODES, AGENTS, STEPS = 100_000, 20, 10
TARGET = 50_000.0
NAMESPACE = "team-a"
IN_FORCE = {"components": [{"name": "done", "type": "success", "weight": 1}]}
SUMMARY = {
    "components": [
        {"name": "done", "type": "success", "weight": 0.4},
        {"name": "quick", "type": "efficiency", "weight": 0.2, "scale": 20},
        {"name": "quality", "type": "quality", "weight": 0.15},
        {"name": "feedback", "type": "feedback", "weight": 0.25},
    ]
}
STEPWISE = {
    "components": [
        {"name": "done", "type": "success", "weight": 0.5},
        {"name": "smooth", "type": "smoothness", "weight": 0.5},
    ],
    "shaping": {"observation": 1, "weight": 1},
}
FILL = """
WITH made AS (
    INSERT INTO trajectories (namespace, trajectory_id, agent_id, task, episode_id, policy_revision, started_at,
        ended_at, received_at, steps, status, episode_return, success, outcome_values, retrieval_ids, labels)
    SELECT $1, 't' || n, 'agent-' || n % $3, 'task-' || n % 50, 'e' || n, 'r1', now(), now(),
        now() - make_interval(secs => n), $4, 'completed', random() * 10, random() < 0.7,
        jsonb_build_object('quality', random(), 'feedback', random() * 2 - 1), '[]', '{}'
    FROM generate_series(1, $2::int) AS n RETURNING namespace, trajectory_id, received_at)
INSERT INTO training_transitions (namespace, trajectory_id, received_at, steps)
SELECT namespace, trajectory_id, received_at, (
    SELECT jsonb_agg(jsonb_build_object('observation', jsonb_build_array(random(), random(), random(), random()),
        'action', (random() * 3)::int, 'reward', 1.0, 'log_prob', -0.7, 'terminated', false, 'truncated', false,
        'exploration', false)) FROM generate_series(1, $4::int + 0 * length(trajectory_id))) FROM made
"""
AGENT = """
INSERT INTO agents (namespace, name, registered_at, reward_policy, reward_policy_revision)
SELECT $1, 'agent-' || n, now(), 'now', 'r1' FROM generate_series(0, $2::int - 1) AS n
"""


async def measure(dsn: str, episodes: int, postmaster: int) -> dict[str, Any]:
    """Fills a database and tries both policies on it."""
    await migrate(dsn)
    connection = await asyncpg.connect(dsn)
    await connection.execute("INSERT INTO tenants (namespace) VALUES ($1)", NAMESPACE)
    await connection.execute(
        "INSERT INTO reward_policy_revisions (namespace, name, revision, spec) VALUES ($1, 'now', 'r1', $2)",
        NAMESPACE,
        json.dumps(IN_FORCE),
    )
    await connection.execute(AGENT, NAMESPACE, AGENTS)
    await connection.execute(FILL, NAMESPACE, episodes, AGENTS, STEPS)
    await connection.execute("ANALYZE")
    await connection.close()
    db = Database(dsn, pool_size=2)
    db.start()
    await asyncio.wait_for(db.ready.wait(), 60)
    figures: dict[str, Any] = {"episodes": episodes, "steps_per_episode": STEPS, "agents": AGENTS}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name, spec in (("summary", SUMMARY), ("stepwise", STEPWISE)):
        window = Window(datetime(1970, 1, 1, tzinfo=UTC), datetime.now(UTC) + timedelta(hours=1), episodes)
        processor, started = _processor(postmaster), time.perf_counter()
        found = await DryRun(db).run(NAMESPACE, RewardPolicySpec.model_validate(spec), window)
        wall, used = time.perf_counter() - started, _processor(postmaster) - processor
        assert found.trajectories == episodes, found
        figures[f"{name}_per_minute_wall"] = round(60 * episodes / wall)
        figures[f"{name}_per_minute_and_core"] = round(60 * episodes / used)
        figures[f"{name}_correlation"] = found.correlation
        print(f"{name}: {wall:.1f} s, {used:.1f} s of processor: {found.sentence}", file=sys.stderr, flush=True)
    await db.close()
    figures["grown_mib"] = round((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, 1)
    return figures


def _processor(postmaster: int) -> float:
    """Seconds of processor time of this process and of the server's processes."""
    ticks = 0
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        if int(fields[1]) == postmaster:
            ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def main(arguments: list[str]) -> int:
    """Prints the figures; 1 where one is below the target."""
    episodes = numbers(__doc__, arguments, episodes=EPISODES).episodes
    with postgres() as server:
        postmaster = int((Path(server.pgdata) / "postmaster.pid").read_text().splitlines()[0])
        figures = asyncio.run(measure(str(server.get_uri()), episodes, postmaster))
    met = all(figures[f"{name}_per_minute_and_core"] >= TARGET for name in ("summary", "stepwise"))
    print(json.dumps({"bench": "dry-run", **figures, "target_per_minute_and_core": TARGET, "met": met}))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
