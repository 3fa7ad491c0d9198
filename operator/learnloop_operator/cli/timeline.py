"""The replay of recorded rollouts as text: what the operator would have said when, beside what really happened."""

import asyncio
import re
from datetime import timedelta

from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_operator.adapters.prometheus import PrometheusError
from learnloop_operator.adapters.rollout_evidence import gather
from learnloop_operator.cli.cluster import Cluster, Object
from learnloop_operator.cli.history import History, Recorded, with_guests
from learnloop_operator.cli.output import status as status_of
from learnloop_operator.core.rollout.replay import Look, Replay, guests_of
from learnloop_operator.core.rollout.world import Model

UNKNOWN = "https://unknown.invalid/"
LOOKS = 2000
"""Looks at one rollout; a few queries each."""


def timelines(cluster: Cluster, history: History, body: Object, spec: ModelDeploymentSpec, last: timedelta) -> str:
    """One block per rollout.

    Raises:
        CommandError: Prometheus cannot be asked.
    """
    name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
    rollouts = history.rollouts(namespace, name, last)
    if not rollouts:
        return f"no rollout of {namespace}/{name} is on record in the last {last}: Prometheus may keep less than that"
    live = cluster.find("modeldeployments", name)
    rollouts = with_guests(rollouts, {model.revision for model in guests_of(spec).values()})
    blocks = [
        asyncio.run(_block(history, namespace, name, spec, past, _fate(past, status_of(live or {}))))
        for past in rollouts
    ]
    if any(step.experiment for step in spec.rollout.steps):
        blocks.append(
            "Experiments are replayed by the episodes that were really played, whatever the split was then. No record "
            "holds the fast lane's readings, the readiness of pods, or whom a person would choose."
        )
    if any(step.shadow for step in spec.rollout.steps):
        blocks.append("Shadow steps compare copies of requests, which no record holds: the replay waits in them.")
    return "\n\n".join(blocks)


async def _block(
    history: History, namespace: str, name: str, spec: ModelDeploymentSpec, past: Recorded, fate: str
) -> str:
    models = _model(past.canary), _model(past.stable)
    replay = Replay(namespace, name, spec, *models, past.began, past.guests)
    interval = timedelta(seconds=spec.analysis.interval_seconds)
    lines = [f"{past.began:%Y-%m-%d %H:%M:%S}  {past.canary} beside {past.stable}"]
    absent = [
        f"{label} ({model.revision})" for label, model in guests_of(spec).items() if model.revision not in past.guests
    ]
    if absent:
        lines.append(
            f"  without {', '.join(absent)}: not on record beside the canary; with fewer arms less proof is asked"
        )
    told: Look | None = None
    end = past.ended + interval
    for number in range(LOOKS):
        history.at = past.began + number * interval
        if history.at > end or replay.over:
            break
        deadline = spec.rollout.progress_deadline_seconds
        asked = replay.asked(history.at)
        evidence = await gather(history, namespace, name, asked, replay.metrics, deadline)
        look = replay.look(history.at, evidence)
        if look.differs(told):
            lines += [f"  {look.at:%H:%M:%S}  {said}" for said in look.raced]
            lines.append(_line(look, await _really(history, namespace, name, past)))
        told = look
    if told is not None and not replay.over:
        stop = "the record ends" if history.at > end else f"after {LOOKS} looks"
        lines.append(f"  {stop:<19}  {told.sentence}")
    return "\n".join([*lines, f"  really: {fate}"])


async def _really(history: History, namespace: str, name: str, past: Recorded) -> str:
    try:
        share = await history.share(namespace, name, past.canary)
    except PrometheusError:
        return "?"
    return "-" if share is None else f"{100 * share:.0f} %"


def _line(look: Look, really: str) -> str:
    sentence = re.sub(rf" \({UNKNOWN}[0-9a-f]+\)", "", look.sentence)
    return f"  {look.at:%H:%M:%S}  would be {look.weight:>3} %  was {really:>5}  {look.phase}: {sentence}"


def _fate(past: Recorded, status: Object) -> str:
    """What the object says of the canary now, else how long it played."""
    pinned, stable = status.get("blockedRevision") or {}, status.get("stable") or {}
    if pinned.get("revision") == past.canary:
        return f"{pinned['message']} ({pinned['at']})"
    if stable.get("revision") == past.canary:
        return f"it is stable now, promoted at {status.get('promotedAt') or 'an unknown time'}"
    return f"its pods were there until {past.ended:%Y-%m-%d %H:%M:%S}"


def _model(revision: str) -> Model:
    """The record knows the revision, not the address."""
    return Model(revision, f"{UNKNOWN}{revision}")
