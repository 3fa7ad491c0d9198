"""Nearest experience: the recorded steps of an agent whose states are nearest to a state, by exact search.

A request reads the newest steps of the log, so nothing is kept for it: row-level security, erasure, retention and
encryption are those of the log. What it reads is bounded by steps and by numbers.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from learnloop_api.wire.base import LARGEST
from learnloop_api.wire.trajectory import SimilarExperience, SimilarExperiences
from learnloop_dataplane import data_keys
from learnloop_dataplane.concurrency.limits import in_thread
from learnloop_dataplane.postgres.database import STEPS_OF_EACH, Database

MOST_STEPS, MOST_NUMBERS, MOST_EPISODES, PAGE = 10_000, 2_000_000, 2000, 50
_PAGE = f"""
SELECT t.seq, t.trajectory_id, t.episode_return, t.success, s.steps::text AS log, s.last_observation::text
    AS last_observation
FROM (SELECT * FROM trajectories t WHERE t.namespace = $1 AND t.agent_id = $2 AND t.seq < $3
    ORDER BY t.seq DESC LIMIT $4) t {STEPS_OF_EACH} ORDER BY t.seq DESC
"""
_NEWEST = 2**63 - 1


class Episode(NamedTuple):
    """A row of the page, its steps, and the states before each of them and after the last."""

    row: Mapping[str, Any]
    steps: list[dict[str, Any]]
    states: list[Any]


Steps = list[tuple[Episode, int]]
"""Episodes and places in them: an answer is made of the few that are nearest."""


class NearestExperience:
    """Of all namespaces."""

    def __init__(self, db: Database, cipher: data_keys.StepCipher = data_keys.PLAIN) -> None:
        self._db, self._cipher = db, cipher

    async def nearest(self, namespace: str, agent: str, state: Sequence[float], k: int) -> SimilarExperiences:
        """The `k` nearest among the newest steps that saw as many numbers, nearest first."""
        steps: Steps = []
        limit, before = min(MOST_STEPS, MOST_NUMBERS // len(state)), _NEWEST
        for _ in range(0, MOST_EPISODES, PAGE):
            async with self._db.tenant(namespace) as connection:
                rows = await connection.fetch(_PAGE, namespace, agent, before, PAGE)
            opened = await self._cipher.open_rows(self._db, namespace, rows)
            steps += await in_thread(namespace, _numeric, opened, len(state))
            if len(rows) < PAGE or len(steps) >= limit:
                break
            before = rows[-1]["seq"]
        del steps[limit:]
        return await in_thread(namespace, _ranked, steps, np.asarray(state), k)


def _numeric(rows: Sequence[Mapping[str, Any]], width: int) -> Steps:
    result: Steps = []
    for row in rows:
        steps = orjson.loads(row["log"] or "[]")
        states = [step["observation"] for step in steps] + [orjson.loads(row["last_observation"] or "null")]
        episode = Episode(row, steps, states)
        result += [(episode, place) for place in range(len(steps)) if _fits(states[place], width)]
    return result


def _fits(observation: Any, width: int) -> bool:
    return isinstance(observation, list) and len(observation) == width and set(map(type, observation)) <= {int, float}


def _experience(episode: Episode, place: int, width: int, distance: float) -> SimilarExperience:
    step, after = episode.steps[place], episode.states[place + 1]
    return SimilarExperience(
        trajectory_id=episode.row["trajectory_id"],
        step=place,
        state=episode.states[place],
        action=step["action"],
        reward=step.get("reward") or 0.0,
        next_state=after if _fits(after, width) else None,
        terminated=bool(step.get("terminated")),
        episode_return=episode.row["episode_return"],
        success=episode.row["success"],
        distance=distance,
    )


def _ranked(steps: Steps, state: NDArray[np.float64], k: int) -> SimilarExperiences:
    """By Euclidean distance, each number in units of its deviation among these steps; one that never changed counts as
    it is."""
    if not steps:
        return SimilarExperiences(looked_at=0, experiences=[])
    states = np.asarray([episode.states[place] for episode, place in steps], dtype=np.float64)
    deviation = states.std(axis=0)
    deviation[np.ptp(states, axis=0) == 0] = 1.0  # that of 0.1 a thousand times is 1e-16
    with np.errstate(over="ignore"):
        distance = np.minimum(np.linalg.norm((states - state) / deviation, axis=1), LARGEST)
    order = np.argsort(distance, kind="stable")[:k]
    pairs = ((steps[number], float(distance[number])) for number in order)
    nearest = [_experience(episode, place, len(state), far) for (episode, place), far in pairs]
    return SimilarExperiences(looked_at=len(steps), experiences=nearest)
