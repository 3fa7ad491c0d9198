"""The loop turns on a real cluster: progress on standard output, one JSON object as its last line.

python -m bench.loop [TURNS]

Four agents, one after the other, each applied as YAML and left alone: CartPole whose pole is of another length in
each turn (ppo), Pendulum (sac, its own and logged transitions), KeyDoor (hierarchical-dqn), and an external agent that
trains on what it has logged alone (cql). A turn is a training run with what became of it. What is served is read from
the episodes that users got, in the data plane.

EPISODES=10000 in the environment: in their place another external agent, whose log grows by so many episodes in each
turn.
"""

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from string import Template
from textwrap import indent
from typing import Any

from bench.arguments import numbers
from bench.loop import external_agent
from bench.loop.figures import Turn, log_was_read, missed, summary
from bench.loop.turns import Agent, Users
from demo import install
from demo.api import Api, connect
from demo.narrator import Narrator, StoryFailedError
from demo.settings import Settings
from demo.waiting import until
from go_programs.go_build import KUBERNETES_VERSION
from testing.real_cluster.cluster_actions import Rig, own_namespace

NAMESPACE = "bench-loop"
AGENTS = ("pole", "pendulum", "keydoor", "clerk")
COMPLETE = ("keydoor",)
"""Agents whose episodes end when the task is completed: fewer steps are better."""
GRIDS = Path("examples/worlds/grids.py")
HALF_LENGTHS = (0.5, 0.35, 0.7, 0.25, 1.0)
"""Of the pole, in metres, turn by turn."""


def document(name: str, turn: int, episodes: int = 0) -> str:
    """An agent's YAML as it is in this turn; `episodes`: that it logs in one."""
    text = (Path(__file__).parent / "agents" / f"{name}.yaml").read_text()
    half = HALF_LENGTHS[(turn - 1) % len(HALF_LENGTHS)]
    return Template(text).substitute(
        TURN=turn, HALF_LENGTH=half, GRIDS=indent(GRIDS.read_text(), "    "), EPISODES=episodes
    )


def measure(api: Api, narrator: Narrator, context: str | None, turns: int, episodes: int) -> list[Turn]:
    """All turns of all agents; those that did not happen are missing."""
    rig, users, results = Rig(api), Users(NAMESPACE, context), list[Turn]()
    actor: dict[str, Any] | None = None
    # An external agent's pod is as the actors of an agent before it.
    wanted = {AGENTS[0]: 0, external_agent.OF_MANY: turns} if episodes else dict.fromkeys(AGENTS, turns)
    for name in wanted:
        narrator.chapter(name)

        def prepare(turn: int, name: str = name) -> None:
            if turn == 1 or name == "pole":
                apply(api, document(name, turn, episodes))
            if turn > 1 and name == "pole":  # its actors play the new one from here on
                api.run("rollout", "status", "-n", NAMESPACE, "deployment/pole-actor", "--timeout=180s")

        prepare(1)
        if name in external_agent.OWN:
            assert actor is not None, "the agents before it have actors"
            rig.apply(NAMESPACE, external_agent.deployment(actor, AGENTS[0], name))
        try:
            follow(Agent(rig, users, narrator, NAMESPACE, name), wanted[name], prepare, results)
        except StoryFailedError as error:
            narrator.say(f"{name}: {error}")
        if actor is None:
            path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{name}-actor"
            actor = until("the actors' Deployment", lambda path=path: api.get(path), 60)  # type: ignore[misc]
        api.run("delete", "-n", NAMESPACE, "learningagent", name, "--wait=true", "--timeout=120s")
    return results


def follow(agent: Agent, turns: int, prepare: Callable[[int], None], results: list[Turn]) -> None:
    """Adds the agent's turns to `results`, each as soon as it is over."""
    for number in range(1, turns + 1):
        results.append(agent.turn(number, prepare))


def apply(api: Api, text: str) -> None:
    """As a user does."""
    api.run("apply", "-n", NAMESPACE, "--server-side", "--force-conflicts", "-f", "-", stdin=text)


def main(arguments: list[str]) -> int:
    """0 when the goals are met."""
    options, episodes = numbers(__doc__, arguments, turns=5), int(os.environ.get("EPISODES", "0"))
    narrator, settings = Narrator(), Settings.read()
    kubectl = install.prepare(settings, narrator)
    began = time.monotonic()
    with connect(kubectl) as api:
        for _ in own_namespace(api, NAMESPACE):
            results = measure(api, narrator, settings.context, options.turns, episodes)
    figures = summary(results, COMPLETE)
    goals = log_was_read(results, options.turns, episodes) if episodes else missed(figures, len(AGENTS), options.turns)
    figures |= {
        "goals_missed": goals,
        "total_seconds": round(time.monotonic() - began, 1),
        "kubernetes": KUBERNETES_VERSION,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }
    print(json.dumps(figures))
    return 1 if figures["goals_missed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
