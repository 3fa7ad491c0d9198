"""First part of the story: the model learns from its users' turns and from its own, and is let out step by step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from demo.api import Api, Json
from demo.learning import finished, newest_job, promoted
from demo.narrator import Narrator
from demo.settings import Settings
from demo.waiting import until
from demo_language.tiny_model import EXAMPLE

DIGEST_IN_EXAMPLE = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
RECORDED = 60


@dataclass(frozen=True)
class Learned:
    """Shares of tasks solved: held-out ones by the base model and by the promoted one, and those of users at the end;
    episodes that were recorded before training; seconds from the apply to the promotion."""

    baseline: float
    promoted: float
    users: float
    recorded: int
    seconds: float


def watch_it_learn(
    api: Api, settings: Settings, narrator: Narrator, base: str, when_proven: Callable[[], None]
) -> Learned:
    """Applies agent.yaml and follows it until the trained adapter serves everyone.

    `when_proven` is called once training has ended; the rollout needs little of the machine.

    Raises:
        StoryFailedError: a joint of the loop did not close.
    """
    narrator.chapter("An agent that speaks: its base model serves, and users talk to it")
    began = narrator.elapsed()
    manifest = (EXAMPLE / "agent.yaml").read_text().replace(DIGEST_IN_EXAMPLE, base)
    for line in api.run("apply", "-n", settings.namespace, "-f", "-", stdin=manifest).splitlines():
        narrator.say(line)
    until("conversations", lambda: _recorded(api, settings, narrator, RECORDED), 240)

    narrator.chapter("Training: RLOO on recorded turns, then on conversations of its own")
    name = until("a training trigger", lambda: newest_job(api, settings), 240)
    recorded = until("a count of conversations", lambda: _recorded(api, settings, narrator, 1), 60)
    narrator.say(f"TrainingJob {name}, {recorded} conversations recorded")
    job = until("a proven model", lambda: finished(api, settings, narrator, name), 600)
    baseline, proven = (float(job["status"][which]["mean"]) for which in ("baseline", "evaluation"))
    narrator.say(f"held-out tasks solved: {baseline:.2f} before, {proven:.2f} now")
    for gate in job["status"].get("gates", []):
        narrator.say(f"gate {gate['name']}: {gate['message']}")
    when_proven()

    narrator.chapter("Suites ask the candidate before any user does; then a canary")
    artifact = job["status"]["artifact"]
    until("promotion", lambda: _let_out(api, settings, narrator, artifact["uri"]), 600)
    seconds = narrator.elapsed() - began
    narrator.say(f"the trained adapter answers everyone, {seconds:.0f} s after the apply")
    users = until("conversations of the promoted adapter", lambda: _users(api, settings), 120)
    narrator.say(f"tasks solved in front of its users: {users:.2f}")
    return Learned(baseline, proven, users, recorded, seconds)


def say_suites(narrator: Narrator, status: Json) -> None:
    """Each suite's verdict once it is there, with the operator's own numbers."""
    for suite in (status.get("gates") or {}).get("suites") or []:
        if suite.get("verdict") in ("passed", "failed"):
            revision = (status.get("gates") or {}).get("revision", "")
            narrator.on_change(
                f"{revision}/{suite['name']}", f"suite {suite['name']} {suite['verdict']}: {suite['message']}"
            )


def _recorded(api: Api, settings: Settings, narrator: Narrator, enough: int) -> int | None:
    status: dict[str, Any] = (api.custom(settings.namespace, "learningagents", settings.agent) or {}).get(
        "status"
    ) or {}
    rewarded = int(status.get("rewarded") or 0)
    if rewarded:
        narrator.on_change("experience", f"{rewarded} conversations recorded and rewarded")
    return rewarded if rewarded >= enough else None


def _let_out(api: Api, settings: Settings, narrator: Narrator, uri: str) -> bool | None:
    deployment = api.custom(settings.namespace, "modeldeployments", settings.agent) or {}
    say_suites(narrator, deployment.get("status") or {})
    return promoted(api, settings, narrator, uri)


def _users(api: Api, settings: Settings) -> float | None:
    deployment = api.custom(settings.namespace, "modeldeployments", settings.agent) or {}
    rate = ((deployment.get("status") or {}).get("stable") or {}).get("successRate")
    return None if rate is None else float(rate)
