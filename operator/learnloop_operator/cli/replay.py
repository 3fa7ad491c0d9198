"""The replay of recorded rollouts as text: the operator's decisions by the new spec, and the real course."""

import asyncio
import re
from collections.abc import Iterator
from datetime import datetime, timedelta

from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_operator.cli.objects import Cluster, CommandError, Object
from learnloop_operator.cli.objects import status as status_of
from learnloop_operator.cli.prometheus_history import STEP, PrometheusHistory, resolution
from learnloop_operator.cli.recorded_rollouts import RecordedRollout, with_guests
from learnloop_operator.core.times import parse
from learnloop_operator.prometheus.client import PrometheusError
from learnloop_operator.prometheus.evidence_source import PrometheusEvidence
from learnloop_operator.rollout.evidence import POD_LABEL, Evidence, EvidenceRequest
from learnloop_operator.rollout.model.snapshot import Model
from learnloop_operator.rollout.replay import Look, Replay, guests_of

UNKNOWN = "https://unknown.invalid/"
CLOCKS = timedelta(seconds=30)
"""The clocks of the operator and of Prometheus may differ by this much."""
LOOKS = 250
"""Looks, a few queries each, before they are spread twice as far: a rollout of days is seen to its end, every moment of
it to within 1/250 of its age."""


def timelines(
    cluster: Cluster,
    history: PrometheusHistory,
    body: Object,
    spec: ModelDeploymentSpec,
    last: timedelta,
    pod_label: str = POD_LABEL,
) -> str:
    """One block per rollout. The specification's own queries read what the caller may read.

    Raises:
        CommandError: Prometheus cannot be asked.
    """
    name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
    rollouts = history.rollouts(namespace, name, last)
    if not rollouts:
        return f"no rollout of {namespace}/{name} is on record in the last {last}: Prometheus may keep less than that"
    live = cluster.find("modeldeployments", name)
    rollouts = with_guests(rollouts, {model.revision for model in guests_of(spec).values()})
    # The object tells of the last try of a revision only.
    latest = {past.canary: past for past in rollouts}
    blocks = [
        asyncio.run(
            _block(
                history,
                namespace,
                name,
                spec,
                past,
                _fate(past, status_of(live or {}) if latest[past.canary] is past else {}),
                pod_label,
            )
        )
        for past in rollouts
    ]
    if any(step.experiment for step in spec.rollout.steps):
        blocks.append(
            "Experiments are replayed by the episodes that were really played, whatever the split was then. No record "
            "holds the fast lane's readings, the readiness of pods, or a person's choice."
        )
    if any(step.shadow for step in spec.rollout.steps):
        blocks.append(
            "Shadow steps are replayed by the copies that were really made, compared by the maxDistance in force then; "
            "of a rollout without copies on record they are left out."
        )
    if (step := resolution(last)) > STEP:
        blocks.append(f"{last} were looked through each {step:.0f} s: rollouts shorter than that may be missing.")
    return "\n\n".join(blocks)


async def _block(
    history: PrometheusHistory,
    namespace: str,
    name: str,
    spec: ModelDeploymentSpec,
    past: RecordedRollout,
    fate: str,
    pod_label: str,
) -> str:
    try:
        copied = any(step.shadow for step in spec.rollout.steps) and await history.copied(namespace, name, past)
    except PrometheusError as error:
        raise CommandError(f"the copies of {past.canary} in shadow: {error}") from error
    models = _model(past.canary), _model(past.stable)
    replay = Replay(namespace, name, spec, *models, past.began, past.guests, copied)
    lines = [f"{past.began:%Y-%m-%d %H:%M:%S}  {past.canary} next to {past.stable}", *_left_out(spec, past, copied)]
    before: Look | None = None
    widest = interval = timedelta(seconds=spec.analysis.interval_seconds)
    for at, spread in moments(past.began, past.ended + interval, interval):
        history.at, widest = at, spread
        look = replay.look(at, await _evidence(history, namespace, name, spec, replay, pod_label))
        if look.differs(before):
            lines += [f"  {look.at:%H:%M:%S}  {raced}" for raced in look.raced]
            lines.append(_line(look, await _really(history, namespace, name, past)))
        before = look
        if replay.over:
            break
    if before is not None and not replay.over:
        lines.append(f"  {'the record ends':<19}  {before.sentence}")
    if widest > interval:
        spacing = f"each {interval.total_seconds():g} s at first, each {widest.total_seconds():g} s in the end"
        lines.append(f"  looked at {spacing}: changes may be shown that much late")
    return "\n".join([*lines, f"  really: {fate}"])


def moments(began: datetime, end: datetime, interval: timedelta) -> Iterator[tuple[datetime, timedelta]]:
    """When to look, and how far apart: at the operator's interval, and twice as far after each `LOOKS` looks."""
    at, number = began, 0
    while at <= end:
        spread = interval * 2 ** (number // LOOKS)
        yield at, spread
        at, number = at + spread, number + 1


async def _evidence(
    history: PrometheusHistory, namespace: str, name: str, spec: ModelDeploymentSpec, replay: Replay, pod_label: str
) -> Evidence:
    """As the operator gathers it: of the copies in a shadow step, of the arms' episodes otherwise."""
    source, shadowed = PrometheusEvidence(history, history, pod_label), replay.shadowed(history.at)
    if shadowed is not None:
        return await source.of_copies(namespace, name, shadowed)
    times = spec.rollout.progress_deadline_seconds, spec.analysis.episode_deadline_seconds
    request = EvidenceRequest(namespace, name, replay.asked(history.at), tuple(replay.metrics), *times)
    return await source.of_episodes(request)


def _left_out(spec: ModelDeploymentSpec, past: RecordedRollout, copied: bool) -> list[str]:
    """Parts of the spec that this rollout's record cannot show."""
    lines = []
    absent = [
        f"{label} ({model.revision})" for label, model in guests_of(spec).items() if model.revision not in past.guests
    ]
    if absent:
        lines.append(
            f"  without {', '.join(absent)}: not on record next to the canary; with fewer arms less proof is asked"
        )
    if not copied and any(step.shadow for step in spec.rollout.steps):
        lines.append(f"  without its shadow steps: no copies to {past.canary} are on record")
    return lines


async def _really(history: PrometheusHistory, namespace: str, name: str, past: RecordedRollout) -> str:
    try:
        share = await history.share(namespace, name, past.canary)
    except PrometheusError:
        return "?"
    return "-" if share is None else f"{100 * share:.0f} %"


def _line(look: Look, really: str) -> str:
    sentence = re.sub(rf" \({UNKNOWN}[0-9a-f]+\)", "", look.sentence)
    return f"  {look.at:%H:%M:%S}  would be {look.weight:>3} %  was {really:>5}  {look.phase}: {sentence}"


def _fate(past: RecordedRollout, status: Object) -> str:
    """The end of this try by the object's status, else by its pods."""
    pins = [*(status.get("blockedRevisions") or ()), status.get("blockedRevision") or {}]
    stable = status.get("stable") or {}
    pinned = next((pin for pin in pins if pin.get("revision") == past.canary and _within(past, pin.get("at"))), None)
    if pinned:
        return f"{pinned['message']} ({pinned['at']})"
    if stable.get("revision") == past.canary and _within(past, status.get("promotedAt")):
        return f"it is stable now, promoted at {status['promotedAt']}"
    if past.promoted:
        return f"it took over from {past.stable}, its pods were there until {past.ended:%Y-%m-%d %H:%M:%S}"
    return f"its pods were there until {past.ended:%Y-%m-%d %H:%M:%S}"


def _within(past: RecordedRollout, moment: str | None) -> bool:
    """Whether it is about this try: a revision may be tried more than once. Clocks may differ a little."""
    at = parse(moment)
    return at is not None and past.began - CLOCKS <= at <= past.ended + CLOCKS


def _model(revision: str) -> Model:
    """The record knows the revision, not the address."""
    return Model(revision, f"{UNKNOWN}{revision}")
