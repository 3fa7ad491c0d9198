"""The Jobs of a candidate's gates, the account they run as, and the little network that they see.

A pod has two containers. The suite asks the candidate and writes its report into a folder; it runs first, and holds a
token only where policy servers ask their callers for one. When it has ended well, `deliver` hands the report in, with
the token by which the data plane knows whose pod it is. At the data plane that token opens nothing else.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from learnloop_api import names
from learnloop_api.kinds.base import PodOptions, seconds_of
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec, ModelDeploymentStatus
from learnloop_api.kinds.rollouts.gates import GateSuite, GateSuiteStatus
from learnloop_api.wire import deployment, routing
from learnloop_operator.core import plan, pod_templates, pod_trouble, times, workload_network
from learnloop_operator.rollout.children.serving_arms import COMPONENT as POLICY_SERVER
from learnloop_operator.rollout.gate_verdict import JobPhase, SuiteRun
from learnloop_operator.rollout.judging.release_gates import suite_stray
from learnloop_operator.rollout.state.rollout_state import State
from learnloop_operator.rollout.state.snapshot import Snapshot

COMPONENT = "gate-suite"
REPORT_VOLUME, DATA_VOLUME, CA_VOLUME = "learnloop-report", "learnloop-data", "learnloop-ca"
DATA_DIRECTORY = "/data"
RETENTION_SECONDS = 86_400
"""A Job that has ended stays so long, for people who want to read its log."""
NEEDS = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}}


def gate_objects(snapshot: Snapshot, state: State) -> tuple[plan.KubeObject, ...]:
    """Objects that running suites still need. A Job never changes, so an existing one is left alone."""
    result, gates = state.gates, snapshot.spec.gates
    if result is None or gates is None or result.phase != "Running":
        return ()
    there = {item["metadata"]["name"] for item in _jobs(snapshot)}
    requested = {suite.name: suite for suite in gates.suites}
    wanted = [item for item in result.suites if item.verdict == "pending" and item.name in requested]
    due = [item for item in wanted if item.job not in there and not suite_stray(snapshot, requested[item.name])]
    if not due:
        return ()
    jobs = [_job(snapshot, state, requested[item.name], item) for item in due]
    # Of a suite without any, too: its policy of an earlier run may still allow what its author has taken out since.
    policies = [_egress(snapshot, requested[item.name]) for item in due]
    return (_service_account(snapshot), _network_policy(snapshot), *policies, *jobs)


def gates_left(spec: ModelDeploymentSpec, status: ModelDeploymentStatus) -> bool:
    """Whether the last candidate's gates had a suite that the spec has no more: what it needed may still be there."""
    ran = {suite.name for suite in status.gates.suites} if status.gates else set()
    return not ran <= _named(spec)


def strays(snapshot: Snapshot, state: State) -> tuple[plan.ObjectRef, ...]:
    """Jobs at work, or in a queue, that no gate waits for; policies and the account of suites that are gone."""
    result = state.gates
    waited = {item.job for item in result.suites if item.verdict == "pending"} if result else set()
    jobs = [job for job in _jobs(snapshot) if job["metadata"]["name"] not in waited and _end(job)[0] == "active"]
    needed = _named(snapshot.spec) | ({None} if snapshot.spec.gates else set())  # None: of all suites
    left = [
        item
        for item in snapshot.children
        if item["metadata"].get("labels", {}).get(names.LABEL_COMPONENT) == COMPONENT
        if item["kind"] != "Job" and item["metadata"]["labels"].get(names.LABEL_GATE_SUITE) not in needed
    ]
    return tuple(
        plan.ObjectRef(item["apiVersion"], item["kind"], snapshot.namespace, item["metadata"]["name"])
        for item in (*jobs, *left)
    )


def _named(spec: ModelDeploymentSpec) -> set[str]:
    return {suite.name for suite in spec.gates.suites} if spec.gates else set()


def _jobs(snapshot: Snapshot) -> Iterable[plan.KubeObject]:
    own = snapshot.object["metadata"]["uid"]
    return (item for item in snapshot.children if item["kind"] == "Job" and plan.controller_uid(item) == own)


def labels(snapshot: Snapshot, suite: str | None = None) -> dict[str, str]:
    """Labels of all of them; a suite's objects carry its name."""
    named = {names.LABEL_GATE_SUITE: suite} if suite else {}
    return plan.standard_labels(COMPONENT, {names.LABEL_DEPLOYMENT: snapshot.name, **named})


def _service_account(snapshot: Snapshot) -> plan.KubeObject:
    return plan.child(
        snapshot.object,
        api_version="v1",
        kind="ServiceAccount",
        name=deployment.gates_account(snapshot.name),
        labels=labels(snapshot),
        automountServiceAccountToken=False,
    )


def _network_policy(snapshot: Snapshot) -> plan.KubeObject:
    """A suite accepts no calls. It calls the policy servers of its ModelDeployment, the data plane and the DNS."""
    servers = {names.LABEL_DEPLOYMENT: snapshot.name, names.LABEL_COMPONENT: POLICY_SERVER}
    return _policy(
        snapshot,
        deployment.gates_account(snapshot.name),
        None,
        [
            workload_network.ports(names.PORT_SERVING, peers=[workload_network.pods(servers)], key="to"),
            workload_network.data_plane(snapshot.defaults.data_url),
            workload_network.DNS,
        ],
    )


def _egress(snapshot: Snapshot, suite: GateSuite) -> plan.KubeObject:
    """The extra destinations that this suite may call, as its author says."""
    return _policy(
        snapshot, f"{deployment.gates_account(snapshot.name)}-{suite.name}"[:253], suite.name, list(suite.egress or ())
    )


def _policy(snapshot: Snapshot, name: str, suite: str | None, egress: list[Any]) -> plan.KubeObject:
    selector = {key: value for key, value in labels(snapshot, suite).items() if key.startswith(names.GROUP)}
    return workload_network.policy(
        snapshot.object,
        name=name,
        component=COMPONENT,
        selector={**selector, names.LABEL_COMPONENT: COMPONENT},
        ingress=[],
        egress=egress,
    )


def _job(snapshot: Snapshot, state: State, suite: GateSuite, standing: GateSuiteStatus) -> plan.KubeObject:
    marks, seconds = labels(snapshot, suite.name), int(seconds_of(suite.timeout))
    template = pod_templates.pod_template(
        _deliver(snapshot, standing.job),
        PodOptions(labels=suite.labels, annotations=suite.annotations),
        labels=marks,
        audience=names.GATE_AUDIENCE,
        service_account=deployment.gates_account(snapshot.name),
        volumes=_volumes(snapshot, suite),
        ends=True,
    )
    template["spec"]["restartPolicy"] = "Never"
    template["spec"]["initContainers"] = [_suite(snapshot, state, suite)]
    return plan.child(
        snapshot.object,
        api_version="batch/v1",
        kind="Job",
        name=standing.job,
        labels=marks,
        spec={
            "activeDeadlineSeconds": seconds,
            # A suite that fails has failed. One whose node is drained has not: it runs again.
            "backoffLimit": 0,
            "podFailurePolicy": {
                "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
            },
            "ttlSecondsAfterFinished": RETENTION_SECONDS,
            "template": template,
        },
    )


def _deliver(snapshot: Snapshot, job: str) -> pod_templates.Main:
    return pod_templates.Main(
        name="deliver",
        image=snapshot.defaults.image,
        pull_policy=snapshot.defaults.image_pull_policy,
        command=("python", "-m", "learnloop_gates", "deliver"),
        env={
            "LEARNLOOP_GATE_JOB": job,
            "LEARNLOOP_GATE_REPORT": deployment.REPORT_FILE,
            "LEARNLOOP_MODEL_DEPLOYMENT": snapshot.name,
            names.ENV_NAMESPACE: snapshot.namespace,
            names.ENV_DATA_URL: snapshot.defaults.data_url,
            names.ENV_TOKEN_FILE: names.TOKEN_FILE,
        },
        mounts=[{"name": REPORT_VOLUME, "mountPath": _folder(), "readOnly": True}],
        resources=NEEDS,
    )


def _suite(snapshot: Snapshot, state: State, suite: GateSuite) -> dict[str, Any]:
    trusted = snapshot.defaults.callers.verified_by == "token"
    env = _suite_env(snapshot, state, suite)
    mounts: list[dict[str, Any]] = [{"name": REPORT_VOLUME, "mountPath": _folder()}]
    if suite.data:
        mounts.append({"name": DATA_VOLUME, "mountPath": DATA_DIRECTORY, "readOnly": True})
    if trusted:
        env[names.ENV_TOKEN_FILE] = names.TOKEN_FILE
    else:
        mounts.append({"name": CA_VOLUME, "mountPath": names.TOKEN_DIRECTORY, "readOnly": True})
    command = tuple(suite.command or ()) if suite.image else ("python", "-m", "learnloop_gates", "run")
    main = pod_templates.Main(
        name="suite",
        image=snapshot.defaults.image,
        pull_policy=snapshot.defaults.image_pull_policy,
        command=command,
        args=tuple(suite.args or ()),
        env=env,
        mounts=mounts,
        resources=NEEDS,
    )
    options = PodOptions(image=suite.image, env=suite.env, resources=suite.resources)
    return pod_templates.container(main, options, token=trusted)


def _suite_env(snapshot: Snapshot, state: State, suite: GateSuite) -> dict[str, str | dict[str, Any]]:
    """The environment of every suite."""
    result = state.gates
    assert result is not None, "suites run for a candidate"
    candidate = _url(snapshot, result.revision)
    env: dict[str, str | dict[str, Any]] = {
        "LEARNLOOP_GATE_SUITE": suite.name,
        "LEARNLOOP_GATE_BUILTIN": suite.builtin or "",
        "LEARNLOOP_GATE_SAMPLES": str(suite.samples),
        "LEARNLOOP_GATE_REPORT": deployment.REPORT_FILE,
        "LEARNLOOP_GATE_DATA": DATA_DIRECTORY if suite.data else "",
        "LEARNLOOP_GATE_SECONDS": str(int(seconds_of(suite.timeout))),
        "LEARNLOOP_GATE_CANDIDATE_URL": candidate,
        "LEARNLOOP_GATE_CANDIDATE": result.revision,
        "LEARNLOOP_MODEL_DEPLOYMENT": snapshot.name,
        names.ENV_NAMESPACE: snapshot.namespace,
        "OPENAI_BASE_URL": f"{candidate}/v1",
    }
    if state.stable is not None:
        env["LEARNLOOP_GATE_STABLE_URL"] = _url(snapshot, state.stable.revision)
        env["LEARNLOOP_GATE_STABLE"] = state.stable.revision
    detector = suite.detector
    if detector:
        env |= {"LEARNLOOP_GATE_JUDGE_URL": detector.url, "LEARNLOOP_GATE_JUDGE_MODEL": detector.model}
    if detector and detector.api_key_secret_ref:
        key = {"name": detector.api_key_secret_ref.name, "key": "api-key"}
        env["LEARNLOOP_GATE_JUDGE_KEY"] = {"secretKeyRef": key}
    return env


def _url(snapshot: Snapshot, revision: str) -> str:
    """The arm's own address: only requests that name the arm come there."""
    return (
        f"{snapshot.scheme}://{routing.arm_name(snapshot.name, revision)}.{snapshot.namespace}.svc:{names.PORT_SERVING}"
    )


def _volumes(snapshot: Snapshot, suite: GateSuite) -> list[dict[str, Any]]:
    bundle = {"name": names.CA_CONFIG_MAP, "optional": True, "items": [{"key": names.CA_KEY, "path": names.CA_KEY}]}
    volumes: list[dict[str, Any]] = [{"name": REPORT_VOLUME, "emptyDir": {"sizeLimit": "16Mi"}}]
    if snapshot.defaults.callers.verified_by != "token":
        volumes.append({"name": CA_VOLUME, "configMap": bundle})
    if suite.data:
        volumes.append({"name": DATA_VOLUME, "configMap": {"name": suite.data.config_map}})
    return volumes


def _folder() -> str:
    return deployment.REPORT_FILE.rsplit("/", 1)[0]


# The gates' Jobs as the cluster has them, with the reports that their pods have handed in.


Body = Mapping[str, Any]


def suite_runs(
    jobs: Iterable[Body], pods: Iterable[Body], reports: Iterable[deployment.StoredReport]
) -> dict[str, SuiteRun]:
    """State of each Job by name; of a deleted one, the report it delivered."""
    handed_in = {item.job: item for item in reports}
    pods_of: dict[str, list[Body]] = {}
    for pod in pods:
        for owner in pod["metadata"].get("ownerReferences") or ():
            if owner.get("kind") == "Job":
                pods_of.setdefault(str(owner["name"]), []).append(pod)
    result = {name: SuiteRun(report=report) for name, report in handed_in.items()}
    for job in jobs:
        name = str(job["metadata"]["name"])
        phase, ended, why = _end(job)
        text = pod_trouble.first_trouble(pods_of.get(name, ()))
        result[name] = SuiteRun(phase, (text or why)[:512], ended, handed_in.get(name))
    return result


def _end(job: Body) -> tuple[JobPhase, datetime | None, str]:
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition.get("status") != "True" or condition.get("type") not in ("Complete", "Failed"):
            continue
        why = ": ".join(str(condition[key]) for key in ("reason", "message") if condition.get(key))
        phase: JobPhase = "succeeded" if condition["type"] == "Complete" else "failed"
        return phase, times.parse(condition.get("lastTransitionTime")), why
    return "active", None, ""
