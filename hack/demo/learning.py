"""First half of the story: an agent gets better, without help."""

from dataclasses import dataclass
from typing import Any

from demo.api import Api, Json
from demo.narrator import Narrator, StoryFailedError
from demo.settings import Settings
from demo.waiting import until

ENOUGH_EPISODES = 20


@dataclass(frozen=True)
class Learned:
    """The cluster's messages about the first half."""

    baseline_return: float
    promoted_return: float
    training_workers: int
    model_uri: str
    model_sha256: str
    loop_seconds: float


def watch_it_learn(api: Api, settings: Settings, narrator: Narrator) -> Learned:
    """Applies the quickstart and follows it until the trained policy serves everyone.

    Raises:
        StoryFailedError: a joint of the loop did not close.
    """
    narrator.chapter("The quickstart: one LearningAgent, one RewardPolicy")
    began = narrator.elapsed()
    for line in api.run("apply", "-n", settings.namespace, "-f", str(settings.quickstart)).splitlines():
        narrator.say(line)

    narrator.chapter("Experience and rewards, with no policy but chance")
    baseline = until("experience", lambda: _experience(api, settings, narrator), 240)
    narrator.say(f"baseline return of the uniform random policy: {baseline:.1f}")

    narrator.chapter("Training")
    name = until("a training trigger", lambda: newest_job(api, settings), 240)
    last = api.custom(settings.namespace, "learningagents", settings.agent) or {}
    narrator.say(f"trigger: {_get(last, 'status', 'lastTraining', 'trigger') or 'fired'} → TrainingJob {name}")
    backend, workers = until("a gang", lambda: _gang(api, settings, name), 60)
    narrator.say(f"{backend} {name}: 1 master + {workers} workers")
    job = until("a proven model", lambda: finished(api, settings, narrator, name), 600)
    evaluation = job["status"]["evaluation"]
    narrator.say(
        f"held-out evaluation: {evaluation['mean']:.1f} [{evaluation['ciLow']:.1f}, {evaluation['ciHigh']:.1f}] "
        f"over {evaluation['episodes']} episodes; IQM {evaluation['iqm']:.1f}"
    )
    for gate in job["status"].get("gates", []):
        narrator.say(f"gate {gate['name']}: {gate['message']}")

    narrator.chapter("Canary")
    artifact = job["status"]["artifact"]
    until("promotion", lambda: promoted(api, settings, narrator, artifact["uri"]), 600)
    loop_seconds = narrator.elapsed() - began
    narrator.say(f"the trained policy serves every episode, {loop_seconds:.0f} s after the apply")
    served = until("episodes of the promoted policy", lambda: _improved(api, settings), 300)
    narrator.say(f"return of the agent in front of its users: {served:.1f} (was {baseline:.1f})")
    return Learned(baseline, evaluation["mean"], workers, artifact["uri"], artifact["sha256"], loop_seconds)


def _get(tree: Json, *path: str) -> Any:
    for key in path:
        tree = tree.get(key) or {}
    return tree or None


def _experience(api: Api, settings: Settings, narrator: Narrator) -> float | None:
    agent = api.custom(settings.namespace, "learningagents", settings.agent)
    status = (agent or {}).get("status") or {}
    if not status.get("trajectories"):
        return None
    narrator.on_change(
        "experience", f"{status['trajectories']} episodes collected, {status.get('rewarded', 0)} rewarded"
    )
    enough = (status.get("rewarded") or 0) >= ENOUGH_EPISODES and status.get("baselineReturn") is not None
    return float(status["baselineReturn"]) if enough else None


def newest_job(api: Api, settings: Settings) -> str | None:
    """Name of the agent's newest TrainingJob."""
    agent = api.custom(settings.namespace, "learningagents", settings.agent)
    name = _get(agent or {}, "status", "lastTraining", "name")
    return str(name) if name else None


def _gang(api: Api, settings: Settings, name: str) -> tuple[str, int] | None:
    """The kind that runs the ranks, and how many there are besides the first one."""
    job = api.custom(settings.namespace, "trainingjobs", name)
    backend = _get(job or {}, "status", "backend")
    return (str(backend), int(_get(job or {}, "spec", "workers") or 0)) if backend else None


def finished(api: Api, settings: Settings, narrator: Narrator, name: str) -> Json | None:
    """The job once its model is proven; says on the way how far it is. Raises StoryFailedError where it failed."""
    job = api.custom(settings.namespace, "trainingjobs", name)
    status = (job or {}).get("status") or {}
    if status.get("progress"):
        text = f"{status.get('phase')}: {status['progress']}, step {status.get('step')}"
        if status.get("recentReturn"):
            text += f", return {status['recentReturn']['mean']:.3g}"
        if status.get("eta"):
            text += f", ETA {status['eta']}"
        narrator.on_change("training", text)
    if status.get("phase") == "Failed":
        message = next((c["message"] for c in status.get("conditions", []) if c["type"] == "Ready"), "no reason given")
        raise StoryFailedError(f"TrainingJob {name} failed: {message}")
    return job if status.get("phase") == "Validated" else None


def promoted(api: Api, settings: Settings, narrator: Narrator, uri: str) -> bool | None:
    """Whether the model serves everybody; says each step on the way. Raises StoryFailedError for one rolled back."""
    deployment = api.custom(settings.namespace, "modeldeployments", settings.agent)
    status = (deployment or {}).get("status") or {}
    if status.get("verdict"):
        narrator.on_change("rollout", f"canary {status.get('weight') or 0:3d} %  {status['verdict']}")
    if status.get("phase") == "RolledBack":
        raise StoryFailedError(f"the good model was rolled back: {status.get('verdict')}")
    stable = status.get("stable") or {}
    return True if stable.get("uri") == uri and not status.get("canary") else None


def _improved(api: Api, settings: Settings) -> float | None:
    deployment = api.custom(settings.namespace, "modeldeployments", settings.agent)
    mean = _get(deployment or {}, "status", "stable", "meanReturn")
    return float(mean) if mean else None
