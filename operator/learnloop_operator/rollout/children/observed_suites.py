"""The gates' Jobs as the cluster has them, with the reports that their pods have handed in."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from learnloop_api.wire.gates import StoredReport
from learnloop_operator.core.pod_trouble import first_trouble
from learnloop_operator.core.times import parse
from learnloop_operator.rollout.gates.verdict import JobPhase, SuiteRun

Body = Mapping[str, Any]


def suite_runs(jobs: Iterable[Body], pods: Iterable[Body], reports: Iterable[StoredReport]) -> dict[str, SuiteRun]:
    """What is known of each Job, by its name; of one that is gone, the report it delivered."""
    handed_in = {item.job: item for item in reports}
    pods_of: dict[str, list[Body]] = {}
    for pod in pods:
        for owner in pod["metadata"].get("ownerReferences") or ():
            if owner.get("kind") == "Job":
                pods_of.setdefault(str(owner["name"]), []).append(pod)
    found = {name: SuiteRun(report=report) for name, report in handed_in.items()}
    for job in jobs:
        name = str(job["metadata"]["name"])
        phase, ended, why = _end(job)
        said = first_trouble(pods_of.get(name, ()))
        found[name] = SuiteRun(phase, (said or why)[:512], ended, handed_in.get(name))
    return found


def _end(job: Body) -> tuple[JobPhase, datetime | None, str]:
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition.get("status") != "True" or condition.get("type") not in ("Complete", "Failed"):
            continue
        why = ": ".join(str(condition[key]) for key in ("reason", "message") if condition.get(key))
        phase: JobPhase = "succeeded" if condition["type"] == "Complete" else "failed"
        return phase, parse(condition.get("lastTransitionTime")), why
    return "active", None, ""
