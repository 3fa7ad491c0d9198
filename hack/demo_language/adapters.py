"""Second part of the story: an adapter that tells what it should keep, and one that is polite and wrong."""

import time
from dataclasses import dataclass

from demo import bad_model
from demo.api import Api, Json
from demo.bad_model import RolledBack
from demo.canary_watch import Watch
from demo.narrator import Narrator, StoryFailedError
from demo.settings import Settings
from demo_language.learning import say_suites
from demo_language.tiny_model import EXAMPLE, apply, last_line
from toolkit.work_groups import current

GATE_SECONDS = 300.0


@dataclass(frozen=True)
class Stopped:
    """The gates' results for an adapter that no user met."""

    max_weight: int
    failures: int
    samples: int
    sentence: str


JAILBROKEN, CARELESS = ("jailbroken", "--tells"), ("careless", "--miscounts")
"""Kinds of adapters, and the option by which the trainer's image teaches each."""


def begin_teaching(api: Api, settings: Settings, adapter: tuple[str, str] = JAILBROKEN) -> None:
    """Starts the Job that teaches an adapter by demonstrations, in parallel with the cluster's other work."""
    kind, option = adapter
    apply(api, settings, EXAMPLE / "bad-adapter.yaml", KIND_OF_IT=kind, OPTION=option)


def watch_a_gate_stop_it(api: Api, settings: Settings, narrator: Narrator) -> Stopped:
    """Waits for the adapter that tells private keys, offers it, and waits until the refusal suite has stopped it.

    Raises:
        StoryFailedError: it was not stopped, or by something else.
    """
    narrator.chapter("A jail-broken adapter: it uses its tools well, and tells what it should keep")
    made = _taught(api, settings, narrator, JAILBROKEN)
    begin_teaching(api, settings, CARELESS)
    bad_model.pin(api, settings, narrator, made)
    watch, deadline = Watch(api, settings), time.monotonic() + GATE_SECONDS
    while time.monotonic() < deadline:
        current().check()
        status = (api.custom(settings.namespace, "modeldeployments", settings.agent) or {}).get("status") or {}
        if status.get("verdict"):
            narrator.on_change("gated", f"canary {status.get('weight') or 0:3d} %  {status['verdict']}")
        say_suites(narrator, status)
        canary = status.get("canary") or {}
        watch.look(canary if canary.get("uri") == made["uri"] else {})
        blocked = status.get("blockedRevision") or {}
        if blocked.get("uri") == made["uri"]:
            return _stopped(narrator, watch, status, blocked)
        time.sleep(0.5)
    raise StoryFailedError(f"the jail-broken adapter was not stopped within {GATE_SECONDS:.0f} s")


def watch_it_come_back(api: Api, settings: Settings, narrator: Narrator) -> RolledBack:
    """Waits for the adapter that errs, offers it, and waits until its users' conversations have rolled it back.

    Raises:
        StoryFailedError: it was not rolled back, or not by its users.
    """
    narrator.chapter("A careless adapter: it passes the suites, and is wrong in front of its users")
    made = _taught(api, settings, narrator, CARELESS)
    bad_model.pin(api, settings, narrator, made)
    return bad_model.follow(api, settings, narrator, made["uri"])


def _taught(api: Api, settings: Settings, narrator: Narrator, adapter: tuple[str, str]) -> dict[str, str]:
    made = last_line(api, settings, f"adapter-{adapter[0]}")
    narrator.say(f"taught by demonstrations, and pushed as {made['uri']}")
    return {"uri": str(made["uri"]), "sha256": str(made["sha256"])}


def _stopped(narrator: Narrator, watch: Watch, status: Json, blocked: Json) -> Stopped:
    narrator.say(f"the operator: {blocked['message']}")
    suites = {suite["name"]: suite for suite in (status.get("gates") or {}).get("suites") or []}
    refusal = suites.get("refusal") or {}
    if refusal.get("verdict") != "failed":
        raise StoryFailedError(f"it was stopped, but not by the suite refusal: {blocked['message']}")
    if watch.first_bad is not None:
        raise StoryFailedError("a conversation of the jail-broken adapter's has ended: somebody has met it")
    return Stopped(watch.max_weight, int(refusal["failures"]), int(refusal["samples"]), str(blocked["message"]))
