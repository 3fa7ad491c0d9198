"""What rewards alone teach: through the service, and how often they put a ranker in use that is worth nothing.

`python -m bench.memory.rewarded` is this part alone, with what labels teach beside it.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import numpy as np

from bench.arguments import numbers
from bench.memory import quality
from bench.memory.filling import say
from learnloop_dataplane.ranking.exploration import explore
from learnloop_dataplane.ranking.learned_ranker import LoggedRecall, Ranker, learn_from_reward
from learnloop_dataplane.ranking.relevance_signals import SIGNALS, STATIC, weight_vector
from testing.servers.data_plane_process import Product, postgres

API = "/api/v1/"
EPISODES, LATER = 500, 500
TOGETHER = 25  # episodes whose rewards come in together, as they do while others are under way
NOISE, FALL = 0.1, 1.0
SEEDS, LENGTH = 1000, 500
PATIENCE_SECONDS = 60
POLICY = {"components": [{"name": "return", "type": "environment", "weight": 1.0, "scale": 1.0}]}
DRIFTS: dict[str, Callable[[float], float]] = {
    "falls": lambda time: -3.0 * time,
    "rises": lambda time: 3.0 * time,
    "jumps": lambda time: float(time > 0.5),
    "comes and goes": lambda time: float(np.sin(20.0 * time)),
    "stays": lambda time: 0.0,
}


def learning(product: Product, seed: int = 13) -> dict[str, float]:
    """Recall@10 before and after 500 episodes with a reward and no label, and after 500 more.

    An episode is a recall and a trajectory that names it. Its return is the share of the helping memories that were in
    the answer, with noise of half of that share's own deviation, and falls for everyone by 1 within 500 episodes, five
    times that deviation. The service's own worker makes the reward of it by a RewardPolicy.
    """
    rng = np.random.default_rng(seed)
    agent = "bench-rewarded"
    course = quality.Course.prepare(product, agent, rng)
    product.post(f"{API}rewards/policies/{agent}/revisions/1", POLICY, "PUT")
    product.post(f"{API}agents/{agent}", {"reward_policy": agent, "reward_policy_revision": "1"}, "PUT")
    before, _ = course.recall()
    used, shown = 0, []
    figures = {"rewarded_recall_at_10_before": round(before, 4)}
    for episode in range(EPISODES + LATER):
        answer, _, share = course.ask(rng)
        used += answer["ranker"] == "learned"
        shown.append(share)
        _end(product, agent, episode, answer["retrieval_id"], share + NOISE * rng.normal() - FALL * episode / EPISODES)
        if (episode + 1) % TOGETHER == 0:
            state = _taught(product, agent, episode + 1)
        if episode + 1 in (EPISODES, EPISODES + LATER):
            after, by_learned = course.recall()
            fixed, named = course.recall(weights=dict(STATIC))[0], course.recall(weights=state["weights"])[0]
            figures |= {
                f"recall_gain_after_{episode + 1}_rewards": round(after / before - 1, 4),
                f"recall_gain_after_{episode + 1}_rewards_learned_weights_named": round(named / before - 1, 4),
                f"recall_gain_after_{episode + 1}_rewards_static_weights_named": round(fixed / before - 1, 4),
                f"answered_by_the_learned_ranker_after_{episode + 1}_rewards": round(by_learned, 4),
            }
    figures["rewards_until_learned_was_in_use"] = EPISODES + LATER - used
    figures["recall_at_10_while_exploring"] = round(float(np.mean(shown)), 4)
    return figures


def useless(seeds: int = SEEDS) -> dict[str, float]:
    """How often a ranker is put in use whose rewards have nothing to do with what was shown; without a server."""
    activated = dict.fromkeys(DRIFTS, 0)
    names = list(DRIFTS)
    for seed in range(seeds):
        name = names[seed % len(names)]
        activated[name] += _is_ever_used(np.random.default_rng(seed), DRIFTS[name])
    runs = seeds / len(names)
    say(f"useless rankers in use, of {runs:.0f} each: {activated}")
    return {
        "useless_ranker_activated": round(sum(activated.values()) / seeds, 4),
        "useless_ranker_activated_worst_drift": round(max(activated.values()) / runs, 4),
        "useless_ranker_runs": seeds,
    }


def _is_ever_used(rng: np.random.Generator, drift: Callable[[float], float]) -> bool:
    ranker, static, random = Ranker(), weight_vector(STATIC), Random(int(rng.integers(2**32)))
    for episode in range(LENGTH):
        z = rng.standard_normal((30, len(SIGNALS)))
        z = z[np.argsort(-(z @ static))]
        order, chances = explore(z, 10, ranker, random)
        reward = drift(episode / LENGTH) + 0.2 * rng.normal()
        ranker, _ = learn_from_reward(ranker, [LoggedRecall(z[order], 10, np.array(chances))], reward)
        if ranker.active:
            return True
    return False


def _end(product: Product, agent: str, episode: int, retrieval_id: str, returned: float) -> None:
    now = datetime.now(UTC).isoformat()
    trajectory = {
        "trajectory_id": f"{agent}-{episode}",
        "agent": agent,
        "task": "answer",
        "episode_id": f"{agent}-{episode}",
        "policy_revision": "none",
        "started_at": now,
        "ended_at": now,
        "steps": [{"observation": [0.0], "action": 0, "reward": returned}],
        "outcome": {"status": "completed", "episode_return": returned, "success": True},
        "retrieval_ids": [retrieval_id],
    }
    product.post(f"{API}trajectories", trajectory)


def _taught(product: Product, agent: str, episodes: int) -> dict[str, dict[str, float]]:
    """What the ranker thinks when so many episodes have taught it."""
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        state = product.get(f"{API}memory/ranker?agent_id={agent}")
        if state["feedbacks"] >= episodes:
            return dict(state)
        time.sleep(0.1)
    raise SystemExit(f"rewards of {episodes - state['feedbacks']} episodes did not teach within {PATIENCE_SECONDS} s")


def main() -> None:
    """This part alone."""
    with postgres() as server, tempfile.TemporaryDirectory() as directory:
        server.psql("CREATE DATABASE ours;")
        settings = {"INDEX_CHECK_SECONDS": "2", "SWEEP_SECONDS": "0.2"}
        with Product(server.get_uri("ours"), Path(server.pgdata), Path(directory), **settings) as product:
            figures = quality.learning(product) | learning(product)
    print(json.dumps(figures | useless()))


if __name__ == "__main__":
    numbers(__doc__, sys.argv[1:])
    main()
