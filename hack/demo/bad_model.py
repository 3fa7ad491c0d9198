"""Second half of the story: a model that does the opposite is rolled back before most users meet it."""

import json
import time
from dataclasses import dataclass

from demo.api import Api, Json
from demo.canary_watch import Watch
from demo.narrator import Narrator, StoryFailedError
from demo.settings import ROOT, Settings
from demo.waiting import until


@dataclass(frozen=True)
class RolledBack:
    """The cluster's messages about the second half."""

    max_weight: int
    max_share: float
    rollback_seconds: float
    sentence: str


def watch_it_come_back(
    api: Api, settings: Settings, narrator: Narrator, model_uri: str, model_sha256: str
) -> RolledBack:
    """Makes a valid model with the wrong actions, rolls it out, and waits for the operator to roll it back.

    Raises:
        StoryFailedError: it was not rolled back, or saw more than its first step's share.
    """
    narrator.chapter("A sabotaged model: valid ONNX, the opposite actions")
    bad = _make(api, settings, model_uri, model_sha256)
    narrator.say(f"pushed {bad['uri']}")
    pin(api, settings, narrator, bad)
    return follow(api, settings, narrator, bad["uri"])


def pin(api: Api, settings: Settings, narrator: Narrator, made: dict[str, str]) -> None:
    """Asks the agent to serve exactly this artifact, as its owner would."""
    patch = json.dumps({"spec": {"deployment": {"model": {"uri": made["uri"], "sha256": made["sha256"]}}}})
    api.run("patch", "-n", settings.namespace, "learningagent", settings.agent, "--type=merge", "-p", patch)
    narrator.say("asked the agent to serve it (spec.deployment.model)")


def _make(api: Api, settings: Settings, model_uri: str, model_sha256: str) -> dict[str, str]:
    job = ROOT / "examples" / "sabotaged" / "job.yaml"
    words = {"MODEL_URI": model_uri, "MODEL_SHA256": model_sha256, "TRAINER_IMAGE": api.trainer_image()}
    manifest = job.read_text()
    for word, value in words.items():
        manifest = manifest.replace(word, value)
    api.run("delete", "-n", settings.namespace, "job", "sabotage", "--ignore-not-found", "--wait")
    api.run("apply", "-n", settings.namespace, "-f", "-", stdin=manifest)
    api.run("wait", "-n", settings.namespace, "--for=condition=complete", "--timeout=120s", "job/sabotage")
    last = api.run("logs", "-n", settings.namespace, "job/sabotage").strip().splitlines()[-1]
    made: dict[str, str] = json.loads(last)
    return made


def follow(api: Api, settings: Settings, narrator: Narrator, uri: str) -> RolledBack:
    """Waits until the operator has rolled this model back; raises StoryFailedError where it does not."""
    watch = Watch(api, settings)

    def look() -> RolledBack | None:
        status = (api.custom(settings.namespace, "modeldeployments", settings.agent) or {}).get("status") or {}
        if status.get("verdict"):
            narrator.on_change("bad", f"canary {status.get('weight') or 0:3d} %  {status['verdict']}")
        watch.look((status.get("canary") or {}) if (status.get("canary") or {}).get("uri") == uri else {})
        if watch.first_bad is not None:
            narrator.on_change("first", "its first episode has ended")
        blocked = status.get("blockedRevision") or {}
        return _verdict(narrator, watch, blocked) if blocked.get("uri") == uri and watch.weight == 0 else None

    return until("the rollback of the bad model", look, 420, every=0.5)


def _verdict(narrator: Narrator, watch: Watch, blocked: Json) -> RolledBack:
    if watch.first_bad is None:
        raise StoryFailedError("it was rolled back before a single episode of it was seen to end")
    seconds = time.monotonic() - watch.first_bad
    narrator.say(f"the operator: {blocked['message']}")
    narrator.say(
        f"weight 0, {seconds:.1f} s after its first bad episode; it never had more than {watch.max_weight} %, "
        f"and saw {watch.max_share:.1%} of the episodes opened meanwhile"
    )
    return RolledBack(watch.max_weight, watch.max_share, seconds, blocked["message"])


def restore(api: Api, settings: Settings) -> None:
    """Takes the pin away again, as a person would revert the commit."""
    patch = json.dumps({"spec": {"deployment": {"model": None}}})
    api.run("patch", "-n", settings.namespace, "learningagent", settings.agent, "--type=merge", "-p", patch)
    until(
        "the agent back on its own model",
        lambda: True if _phase(api, settings) in {"Healthy", "Guarding", "RolledBack"} else None,
        60,
    )


def _phase(api: Api, settings: Settings) -> str | None:
    return ((api.custom(settings.namespace, "modeldeployments", settings.agent) or {}).get("status") or {}).get("phase")
