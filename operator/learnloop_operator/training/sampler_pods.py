"""Sampler pods play a run's environment for its learner, on every backend alike.

They are not part of the gang: a Deployment of the operator's own makes them, and they may come and go. They
stand while a gang works, not while it waits in a queue, evaluates or has ended. Key, Service and NetworkPolicy are
those of backends.meeting_place.
"""

import json
from dataclasses import replace
from typing import Any

from learnloop_api import names
from learnloop_api.kinds.base import PodOptions
from learnloop_operator.core.manifest_parts import child, standard_labels
from learnloop_operator.core.plan import Manifest, ObjectRef, Plan
from learnloop_operator.core.pod_templates import Main, pod_template
from learnloop_operator.core.workload_network import DNS, Rule, addresses, data_plane, pods, policy, ports
from learnloop_operator.training.ranks import (
    COMPONENT,
    ENV_SPEC,
    ENVIRONMENT_MOUNT,
    KEY_MOUNT,
    SAMPLER,
    RankDefaults,
    environment_volumes,
    key_name,
    key_volume,
    training_spec,
)
from learnloop_operator.training.run_snapshot import RunRequest, TrainingSnapshot

GRACE_SECONDS = 5
"""A sampler keeps nothing that would have to be saved."""


def deployment(request: RunRequest, defaults: RankDefaults) -> Manifest:
    """apps/v1 Deployment. Nothing in its pods changes with an attempt or with the number of samplers."""
    requested, job = request.spec.samplers, request.job["metadata"]
    assert requested is not None, "checked by with_samplers"
    code = request.spec.data.environment_config_map
    selector = {names.LABEL_SAMPLED_JOB: job["name"], names.LABEL_COMPONENT: SAMPLER}
    marks = standard_labels(SAMPLER, {names.LABEL_SAMPLED_JOB: job["name"]})
    main = Main(
        name=SAMPLER,
        image=defaults.image,
        pull_policy=defaults.pull_policy,
        env={
            ENV_SPEC: _order(request),
            names.ENV_LEARNER: f"{service_name(job['name'])}.{job['namespace']}.svc:{names.PORT_SAMPLERS}",
            names.ENV_SAMPLERS_KEY_FILE: f"{names.SAMPLERS_KEY_DIRECTORY}/{names.SAMPLERS_KEY}",
            **({names.ENV_ENVIRONMENT_DIRECTORY: names.ENVIRONMENT_DIRECTORY} if code else {}),
        },
        mounts=[KEY_MOUNT, *([ENVIRONMENT_MOUNT] if code else [])],
        resources={"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
    )
    template = pod_template(
        main,
        _options(request.spec.pod, requested.resources),
        labels=marks,
        ends=True,
        token=False,
        volumes=[key_volume(job["name"]), *environment_volumes(request.spec)],
        grace_seconds=GRACE_SECONDS,
    )
    return child(
        request.job,
        "apps/v1",
        "Deployment",
        deployment_name(job["name"]),
        marks,
        spec={
            "replicas": requested.count,
            "revisionHistoryLimit": 1,
            # Each stands for itself: a new template need not wait for anybody.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "100%"}},
            "selector": {"matchLabels": selector},
            "template": template,
        },
    )


def _options(ranks: PodOptions, resources: Any) -> PodOptions:
    """The ranks' pod options, but for what belongs to the learner alone: its devices."""
    return ranks.model_copy(update={"resources": resources, "resource_claims": None})


def _order(request: RunRequest) -> str:
    """The ranks' order, without what only they ask about: a run's samplers are the same in all its attempts."""
    bare = replace(request, attempt=0, agent=None, baseline_uri=None, baseline_sha256=None, reward_policy=None)
    order = json.loads(training_spec(bare))
    order["spec"]["samplers"] = {**order["spec"]["samplers"], "count": 0}
    return json.dumps(order, sort_keys=True)


def wanted(snapshot: TrainingSnapshot) -> bool:
    """True while the learner takes steps, or starts: samplers may already look for it."""
    job, beat = snapshot.job, snapshot.heartbeat
    if (
        snapshot.spec.samplers is None
        or snapshot.spec.suspend
        or snapshot.status.get("finishedAt")
        or snapshot.holds("Suspended")
    ):
        return False
    if job is None or job.deleting or job.queued or job.state != "active":
        return False
    return beat is None or beat.phase in ("starting", "training")


def with_samplers(snapshot: TrainingSnapshot, plan: Plan, defaults: RankDefaults) -> Plan:
    """The plan with the samplers' Deployment as it should be, or with its deletion."""
    if snapshot.spec.samplers is None or snapshot.deleting:
        return plan
    if wanted(snapshot):
        request = RunRequest(
            job=snapshot.object,
            spec=snapshot.spec,
            attempt=0,
            agent=None,
            baseline_uri=None,
            baseline_sha256=None,
        )
        return replace(plan, apply=(*plan.apply, deployment(request, defaults)))
    if not snapshot.has_samplers:
        return plan
    ref = ObjectRef("apps/v1", "Deployment", snapshot.namespace, deployment_name(snapshot.name))
    return replace(plan, delete=(*plan.delete, ref))


def deployment_name(job: str) -> str:
    return f"{job}-samplers"


def service_name(job: str) -> str:
    return f"{job}-learner"


def meeting_place(request: RunRequest, defaults: RankDefaults) -> tuple[Manifest, ...]:
    """Secret and Service by which learner and samplers find one another; nothing where no samplers are asked for."""
    if request.spec.samplers is None:
        return ()
    name = request.job["metadata"]["name"]
    marks = standard_labels(SAMPLER, {names.LABEL_SAMPLED_JOB: name})
    key = child(
        request.job,
        "v1",
        "Secret",
        key_name(name),
        marks,
        type="Opaque",
        stringData={names.SAMPLERS_KEY: request.fresh_key},
    )
    service = child(
        request.job,
        "v1",
        "Service",
        service_name(name),
        marks,
        spec={
            "clusterIP": "None",
            # The learner answers before any probe could say so, and has none.
            "publishNotReadyAddresses": True,
            "selector": {names.LABEL_TRAINING_JOB: name, names.LABEL_COMPONENT: COMPONENT},
            "ports": [{"name": "samplers", "port": names.PORT_SAMPLERS, "protocol": "TCP"}],
        },
    )
    return (key, service, *_sampler_network(request, defaults))


def _sampler_network(request: RunRequest, defaults: RankDefaults) -> tuple[Manifest, ...]:
    """Samplers call the learner, the DNS and every address that the spec names; nothing calls them."""
    network, name = defaults.network, request.job["metadata"]["name"]
    if network is None:
        return ()
    learner = pods({names.LABEL_TRAINING_JOB: name, names.LABEL_COMPONENT: COMPONENT})
    out = [
        ports(names.PORT_SAMPLERS, peers=[learner], key="to"),
        DNS,
        *addresses(request.spec.to_kube()),
        *network.to,
    ]
    manifest = policy(
        request.job,
        name=deployment_name(name),
        component=SAMPLER,
        selector={names.LABEL_SAMPLED_JOB: name, names.LABEL_COMPONENT: SAMPLER},
        ingress=[],
        egress=out if network.closed else None,
    )
    return (manifest,)


def rank_network(request: RunRequest, defaults: RankDefaults) -> tuple[Manifest, ...]:
    """The NetworkPolicy of one TrainingJob's ranks; none where the installation wants none.

    Ranks meet on one port and exchange gradients on ports that the system gives them, so all are open among them. They
    call the data plane, the DNS and every address that the spec names: models, recordings, a tracking server. Samplers
    reach the learner on one port.
    """
    network, job = defaults.network, request.job["metadata"]["name"]
    if network is None:
        return ()
    ranks = {names.LABEL_TRAINING_JOB: job, names.LABEL_COMPONENT: COMPONENT}
    named = addresses(request.spec.to_kube(), request.baseline_uri)
    out = [{"to": [pods(ranks)]}, data_plane(defaults.data_url), DNS, *named, *network.to]
    into: list[Rule] = [{"from": [pods(ranks)]}]
    if request.spec.samplers is not None:
        samplers = pods({names.LABEL_SAMPLED_JOB: job, names.LABEL_COMPONENT: SAMPLER})
        into.append(ports(names.PORT_SAMPLERS, peers=[samplers], key="from"))
    manifest = policy(
        request.job,
        name=f"{job}-ranks",
        component=COMPONENT,
        selector=ranks,
        ingress=into,
        egress=out if network.closed else None,
    )
    return (manifest,)
