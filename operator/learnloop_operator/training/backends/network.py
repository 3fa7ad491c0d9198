"""Network of ranks and samplers: NetworkPolicies, and the Secret and Service by which samplers find the learner."""

from learnloop_api import names
from learnloop_operator.core.ownership import child, standard_labels
from learnloop_operator.core.plan import Manifest
from learnloop_operator.core.workload_network import DNS, Rule, addresses, data_plane, pods, policy, ports
from learnloop_operator.training.backends.backend import COMPONENT, SAMPLER, RankDefaults, key_name
from learnloop_operator.training.snapshot import RunRequest


def deployment_name(job: str) -> str:
    """Of the Deployment of a TrainingJob's samplers."""
    return f"{job}-samplers"


def service_name(job: str) -> str:
    """Of the Service by which samplers find the learner."""
    return f"{job}-learner"


def meeting_place(request: RunRequest, defaults: RankDefaults) -> tuple[Manifest, ...]:
    """Secret and Service by which learner and samplers find one another; nothing where no samplers are asked for."""
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
