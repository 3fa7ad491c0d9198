"""`kubectl learnloop status [NAME]`: the loop of one agent, or of all."""

import argparse

from learnloop_operator.cli.access.cluster import Cluster, Object
from learnloop_operator.cli.text.aligned_rows import condition, number, rows
from learnloop_operator.cli.text.aligned_rows import status as status_of

NAME = "status"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The agent is optional."""
    parser.add_argument("name", nargs="?", help="a LearningAgent; left out, all of the namespace")


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """One block per agent."""
    agents = [cluster.get("learningagents", options.name)] if options.name else cluster.every("learningagents")
    if not agents:
        return f"no LearningAgent in namespace {cluster.namespace!r}"
    return "\n\n".join(_block(cluster, agent) for agent in agents)


def _block(cluster: Cluster, agent: Object) -> str:
    name, status = agent["metadata"]["name"], status_of(agent)
    training, model = status.get("lastTraining") or {}, status.get("model") or {}
    deployment = cluster.find("modeldeployments", name)
    rollout = status_of(deployment) if deployment else {}
    pairs = [
        ("agent", f"{name}: {status.get('phase') or 'not yet seen by the operator'}"),
        ("why", condition(agent, "Ready").get("message")),
        ("experience", _experience(status)),
        ("return", _returns(status)),
        ("memory", _memory(status.get("memory"))),
        ("training", _training(training)),
        ("model", f"{model['source']} ({model['uri']})" if model else None),
        ("rollout", _rollout(rollout)),
        ("verdict", rollout.get("verdict")),
    ]
    return rows(pairs)


def _experience(status: Object) -> str | None:
    if status.get("trajectories") is None:
        return None
    since = status.get("rewardedSinceTraining")
    return f"{status['trajectories']} episodes, {status.get('rewarded') or 0} rewarded, {since or 0} since the last run"


def _returns(status: Object) -> str | None:
    recent, first = number(status.get("recentReturn")), number(status.get("baselineReturn"))
    return f"{recent} recently, {first} at first" if recent and first else recent


def _memory(held: Object | None) -> str | None:
    if not held:
        return None
    share = f", {held['used']} of the budget" if held.get("used") else ""
    gone = f", {held['forgotten']} forgotten" if held.get("forgotten") else ""
    return f"{held['memories']} memories, {held['bytes'] / 2**20:.1f} MiB{share}{gone} (at {held['observedAt']})"


def _training(last: Object) -> str | None:
    return f"{last['name']} {last.get('phase') or 'new'}, by {last['trigger']} at {last['at']}" if last else None


def _rollout(rollout: Object) -> str | None:
    if not rollout:
        return None
    canary = rollout.get("canary")
    step = f", canary {canary['revision']} at {rollout.get('weight') or 0} %" if canary else ""
    stable = (rollout.get("stable") or {}).get("revision", "none")
    return f"{rollout.get('phase')}: stable {stable}{step} {rollout.get('stepText') or ''}".rstrip()
