"""The network of a gang: its ranks speak with one another, and nobody else begins to speak with them."""

from learnloop_api import names
from learnloop_operator.core.plan import Manifest
from learnloop_operator.core.workload_network import DNS, Rule, addresses, data_plane, pods, policy, ports
from learnloop_operator.training.backends.backend import RankDefaults
from learnloop_operator.training.backends.rank_pods import COMPONENT, SAMPLER
from learnloop_operator.training.snapshot import RunRequest


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
