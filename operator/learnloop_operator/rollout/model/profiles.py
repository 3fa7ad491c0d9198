"""Ready-made ways to 100 %, and which of them a ModelDeployment has earned."""

from collections.abc import Mapping
from datetime import datetime

from learnloop_api.kinds.model_deployment import ModelDeploymentSpec, ModelDeploymentStatus, ProfileStatus
from learnloop_api.kinds.rollouts.gates import ShadowCheck
from learnloop_api.kinds.rollouts.rollout_steps import RolloutStep
from learnloop_operator.core import times
from learnloop_operator.core.times import parse

CAUTIOUS_SECONDS = 4800
"""At each of three weights: four hours in all, as specification 001 has it."""
STANDARD_SECONDS = 600
RECENT = 7 * times.DAY
"""A rollback in this time makes the next rollout a cautious one."""
PROVEN = 3
"""So many promotions in a row make the next rollout a fast one."""


def _ways(weights: tuple[int, ...], seconds: int, episodes: int) -> tuple[RolloutStep, ...]:
    rising = tuple(RolloutStep(weight=weight, min_seconds=seconds, min_episodes=episodes) for weight in weights)
    return (*rising, RolloutStep(weight=100, min_episodes=episodes))


STANDARD = _ways((10, 25, 50), STANDARD_SECONDS, 20)
STEPS: Mapping[str, tuple[RolloutStep, ...]] = {
    "cautious": _ways((10, 25, 50), CAUTIOUS_SECONDS, 50),
    "standard": STANDARD,
    "fast": _ways((25,), 0, 20),
    "shadow-first": (RolloutStep(weight=0, shadow=ShadowCheck()), *STANDARD),
}


def expanded(
    spec: ModelDeploymentSpec, before: ModelDeploymentStatus, now: datetime
) -> tuple[ModelDeploymentSpec, ProfileStatus | None]:
    """The spec with the steps of its profile in place of its own, and the profile; a rollout under way keeps the one
    that it began with."""
    wish = spec.rollout.profile
    if wish is None:
        return spec, None
    chosen = _chosen(wish, before, now)
    steps = list(STEPS[chosen.name])
    rollout = spec.rollout.model_copy(update={"steps": steps})
    return spec.model_copy(update={"rollout": rollout}), chosen


def _chosen(wish: str, before: ModelDeploymentStatus, now: datetime) -> ProfileStatus:
    recorded = before.profile
    promotions = _promotions(before)
    if recorded is not None and before.canary is not None and wish in ("auto", recorded.name):
        return recorded.model_copy(update={"promotions": promotions, "promoted_at": before.promoted_at})
    name, why = _earned(before, promotions, now) if wish == "auto" else (wish, f"{wish}: spec.rollout.profile says so")
    return ProfileStatus(name=name, why=why, promotions=promotions, promoted_at=before.promoted_at)


def _promotions(before: ModelDeploymentStatus) -> int:
    """In a row, since the last rollback."""
    recorded = before.profile
    count, counted = (recorded.promotions, recorded.promoted_at) if recorded else (0, None)
    taken = max((pin.at for pin in before.blocked_revisions or ()), default="")
    if before.promoted_at and before.promoted_at != counted:
        count += 1
    return 0 if taken and taken >= (before.promoted_at or "") else count


def _earned(before: ModelDeploymentStatus, promotions: int, now: datetime) -> tuple[str, str]:
    pins = before.blocked_revisions or []
    moments = [(moment, pin) for pin in pins if (moment := parse(pin.at)) is not None]
    if moments:
        moment, pin = max(moments, key=lambda item: item[0])
        ago = max(0.0, (now - moment).total_seconds())
        if ago <= RECENT:
            return "cautious", f"cautious: {pin.revision} was rolled back {times.text(times.rough(ago))} ago"
    if promotions >= PROVEN:
        return "fast", f"fast: the last {promotions} models were promoted, and none was rolled back since"
    if promotions == 0:
        return "standard", "standard: no model was promoted here yet"
    models = "model was" if promotions == 1 else f"{promotions} models were"
    return "standard", f"standard: the last {models} promoted; {PROVEN} in a row make it fast"
