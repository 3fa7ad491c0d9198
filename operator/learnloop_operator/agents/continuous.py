"""Continuous learning: the run whose rank stays, and what keeps it from its next update."""

from collections.abc import Mapping

from learnloop_api import names
from learnloop_api.kinds.model_deployment import BlockedRevision
from learnloop_operator.agents.agent_snapshot import AgentSnapshot, TrainingRun
from learnloop_operator.core import anomalies, artifacts
from learnloop_operator.training.updates import STRAYED

NOTE_THAWED = f"{names.GROUP}/thawed"
"""Annotation of a TrainingJob: digest of the artifact whose roll-back a person has seen and asked for more."""


def warm_run(snapshot: AgentSnapshot) -> TrainingRun | None:
    """The newest run, where its rank stays."""
    newest = snapshot.jobs[-1] if snapshot.jobs else None
    return newest if newest is not None and newest.update is not None and not newest.finished else None


def frozen(snapshot: AgentSnapshot) -> tuple[str, str] | None:
    """Reason and sentence why no update begins until a person asks for one."""
    run, training = (snapshot.jobs[-1] if snapshot.jobs else None), snapshot.spec.training
    if run is None or training is None or training.continuous is None:
        return None
    # The end of the run, or of its rank, thaws nothing: the next run may begin only when a person asks.
    block = _rollback(snapshot, run)
    if block is not None and (run.notes or {}).get(NOTE_THAWED) != run.sha256:
        return "RolledBack", f"the policy of {run.name} was rolled back: {block.message}"
    if run.verdict == STRAYED and (run.rests or run.finished):
        return STRAYED, f"update {run.update} of {run.name} is further than maxKl from the policy that serves"
    for what, result in watched(snapshot).items() if run.rests else ():
        if result.findings:
            return "Anomalous", f"{what}: {result.findings[0].sentence}"
    return None


def thawed(snapshot: AgentSnapshot, run: TrainingRun) -> str:
    """Value of NOTE_THAWED for the next update; "" where nothing was rolled back."""
    return (run.sha256 or "") if _rollback(snapshot, run) else ""


def _rollback(snapshot: AgentSnapshot, run: TrainingRun) -> BlockedRevision | None:
    served = snapshot.deployment
    return artifacts.rolled_back(served.blocked_revisions, run.uri, run.sha256) if served and run.uri else None


def on_trial(snapshot: AgentSnapshot) -> str:
    """The last update, while its canary has no verdict: the next one would end it without one."""
    run, served = warm_run(snapshot), snapshot.deployment
    if run is None or served is None or snapshot.spec.deployment.model is not None:
        return ""
    begins = run.proven and served.stable is not None and served.stable.uri != run.uri and not _rollback(snapshot, run)
    return f"the next update waits for the canary of {run.name}" if served.canary or begins else ""


def watched(snapshot: AgentSnapshot) -> Mapping[str, anomalies.ReturnAnomalies]:
    """Anomalies of the arms that serve: stable, and a canary that plays."""
    served, stats = snapshot.deployment, snapshot.stats
    if served is None or stats is None:
        return {}
    serving = {arm.revision for arm in (served.stable, served.canary) if arm}
    return {f"revision {arm.revision}": anomalies.find(arm.returns) for arm in stats.arms if arm.revision in serving}
