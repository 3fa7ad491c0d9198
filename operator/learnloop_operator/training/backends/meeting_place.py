"""What a learner and its samplers find and know one another by: a Secret, a Service, a NetworkPolicy."""

from learnloop_api import names
from learnloop_operator.core.ownership import child, standard_labels
from learnloop_operator.core.plan import Manifest
from learnloop_operator.core.workload_network import DNS, addresses, pods, policy, ports
from learnloop_operator.training.backends.backend import RankDefaults
from learnloop_operator.training.backends.rank_pods import COMPONENT, SAMPLER, key_name
from learnloop_operator.training.snapshot import RunRequest


def deployment_name(job: str) -> str:
    """Of the Deployment of a TrainingJob's samplers."""
    return f"{job}-samplers"


def service_name(job: str) -> str:
    """Of the Service by which samplers find the learner."""
    return f"{job}-learner"


def meeting_place(request: RunRequest, defaults: RankDefaults) -> tuple[Manifest, ...]:
    """What learner and samplers find and know one another by; nothing where no samplers are asked for."""
    if request.spec.samplers is None:
        return ()
    name = request.job["metadata"]["name"]
    marks = standard_labels(SAMPLER, {names.LABEL_SAMPLED_JOB: name})
    key = child(
        request.job,
        api_version="v1",
        kind="Secret",
        name=key_name(name),
        labels=marks,
        type="Opaque",
        stringData={names.SAMPLERS_KEY: request.fresh_key},
    )
    service = child(
        request.job,
        api_version="v1",
        kind="Service",
        name=service_name(name),
        labels=marks,
        spec={
            "clusterIP": "None",
            # The learner answers before any probe could say so, and has none.
            "publishNotReadyAddresses": True,
            "selector": {names.LABEL_TRAINING_JOB: name, names.LABEL_COMPONENT: COMPONENT},
            "ports": [{"name": "samplers", "port": names.PORT_SAMPLERS, "protocol": "TCP"}],
        },
    )
    return (key, service, *_network(request, defaults))


def _network(request: RunRequest, defaults: RankDefaults) -> tuple[Manifest, ...]:
    """Samplers call the learner, the DNS and every address that the spec names; nobody calls them."""
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
