"""Jobs of a CronJob's template before a real API server: how they begin and end, what a Deployment is scaled to."""

from pathlib import Path
from typing import Any

import pytest

from learnloop_operator.cli.cluster import KubernetesCluster
from learnloop_operator.cli.objects import CommandError
from learnloop_operator.cli.workloads import Workloads

POD = {
    "restartPolicy": "Never",
    "initContainers": [
        {"name": "check", "image": "x", "env": [{"name": "BACKUP", "value": ""}, {"name": "A", "value": "b"}]}
    ],
    "containers": [{"name": "restore", "image": "x", "env": [{"name": "BACKUP", "value": ""}]}],
}


def ended(kube: Any, namespace: str, name: str, how: str) -> dict[str, Any]:
    """What the Job controller writes."""
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": namespace}}
    live = kube.get(job)
    before = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}[how]
    conditions = [{"type": one, "status": "True", "message": "backoff"} for one in (before, how)]
    times = {"completionTime": live["metadata"]["creationTimestamp"]} if how == "Complete" else {}
    start = {"startTime": live["metadata"]["creationTimestamp"]}
    kube.merge(job, {"status": {"conditions": conditions, **start, **times}}, "status")
    return dict(live)


@pytest.fixture
def jobs(api_server: Path, kube: Any, namespace: str) -> Workloads:
    metadata = {"name": "learnloop-restore", "namespace": namespace, "labels": {"app": "learnloop"}}
    template = {"spec": {"backoffLimit": 0, "template": {"metadata": {"labels": {"app": "x"}}, "spec": POD}}}
    spec = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": template}
    kube.create({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec})
    return KubernetesCluster(str(api_server), None, "default").workloads(namespace)


def test_a_job_has_the_templates_pods_and_the_variables_that_are_given(
    jobs: Workloads, kube: Any, namespace: str
) -> None:
    name = jobs.start("learnloop-restore", {"BACKUP": "learnloop-7", "ELSE": "x"})
    made = ended(kube, namespace, name, "Complete")["spec"]["template"]["spec"]
    assert made["initContainers"][0]["env"] == [{"name": "BACKUP", "value": "learnloop-7"}, {"name": "A", "value": "b"}]
    assert made["containers"][0]["env"] == [{"name": "BACKUP", "value": "learnloop-7"}]
    assert jobs.end(name, 10) == "", "its pods are gone, and so is what they said"


def test_a_job_that_failed_or_goes_on_is_no_success(jobs: Workloads, kube: Any, namespace: str) -> None:
    name = jobs.start("learnloop-restore", {})
    with pytest.raises(CommandError, match="has not ended in 0 s"):
        jobs.end(name, 0)
    ended(kube, namespace, name, "Failed")
    with pytest.raises(CommandError, match=f"Job {name} failed: backoff"):
        jobs.end(name, 10)
    with pytest.raises(CommandError, match=r'refuses \(404\).*"learnloop-backup" not found'):
        jobs.start("learnloop-backup", {})


def test_a_deployment_is_scaled_and_says_what_it_was(jobs: Workloads, kube: Any, namespace: str) -> None:
    selector = {"matchLabels": {"app": "x"}}
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "learnloop-data", "namespace": namespace},
        "spec": {"replicas": 3, "selector": selector, "template": template},
    }
    kube.create(body)
    assert jobs.scale("learnloop-data", 0, 10) == 3
    assert kube.get(body)["spec"]["replicas"] == 0
    kube.merge(body, {"status": {"replicas": 1}}, "status")
    with pytest.raises(CommandError, match="still has pods after 0 s"):
        jobs.scale("learnloop-data", 0, 0)
