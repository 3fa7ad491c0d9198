"""What one decision about a ModelDeployment may look at: the frozen snapshot and its parts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from learnloop_api.kinds.base import PodOptions
from learnloop_api.kinds.model_deployment import (
    BlockedRevision,
    ModelDeploymentSpec,
    ModelDeploymentStatus,
    ProfileStatus,
)
from learnloop_api.wire.routing import RoutingTable
from learnloop_operator.core.allowed_pods import PodRules
from learnloop_operator.core.snapshot import BaseSnapshot, obeyed
from learnloop_operator.rollout.evidence.arm_evidence import Evidence
from learnloop_operator.rollout.fast_lane.pod_evidence import PodEvidence
from learnloop_operator.rollout.gates.verdict import SuiteRun
from learnloop_operator.rollout.model.arm_language_model import Spoken
from learnloop_operator.rollout.model.withdrawn_guests import WithdrawnGuests


@dataclass(frozen=True, slots=True)
class Model:
    """A model and the revision it gets here: the digest of uri, sha256 and the pod options it runs with."""

    revision: str
    uri: str
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Desired:
    """The model the user wants served now, or the sentence why there is none yet."""

    model: Model | None = None
    problem: str = ""
    final: bool = False
    """Only a change of this object's spec solves the problem."""
    over: str | None = None
    """The revision that spec.model means, where the winner of an experiment serves in its place."""
    suspended_agent: str = ""
    """Name of the LearningAgent that the model comes from, while it is suspended and its actors play nothing."""


@dataclass(frozen=True, slots=True)
class ArmWorld:
    """One arm as the cluster has it."""

    ready: int = 0
    replicas: int = 0
    restarts: int = 0
    message: str = ""
    """The last sentence a container of the arm left behind, or why its pods cannot run."""
    pod: PodOptions | None = None
    """The pod options the arm was made with; None for an arm made by someone else."""
    model: Model | None = None
    """The model the arm was made with."""
    spoken: Spoken | None = None
    """What it speaks by, as it was made; None: a policy of numbers."""
    unready_since: str | None = None
    """Since when it has had too few ready pods; None: it has enough, or nobody knows."""


@dataclass(frozen=True, slots=True)
class RouteWorld:
    """gateway mode: our HTTPRoute as it stands."""

    weights: Mapping[str, int] = field(default_factory=dict)
    """Percent of new episodes by revision; a revision that is not in it has no rule at all."""
    blocked: BlockedRevision | None = None
    """The verdict written with it."""
    guests_out: WithdrawnGuests | None = None
    """Who had left the experiment when it was written."""


@dataclass(frozen=True, slots=True)
class RoutingWorld:
    """The routing ConfigMap: the table in force and the verdict written with it; in gateway mode the route, too."""

    table: RoutingTable | None = None
    blocked: BlockedRevision | None = None
    route: RouteWorld | None = None
    """None: there is none, or it belongs to somebody else."""

    def verdicts(self) -> tuple[BlockedRevision, ...]:
        """Verdicts in force: what carries one of them no longer names its revision.

        The HTTPRoute and the ConfigMap are two writes, and whichever was the last one before an operator died has it.
        """
        found, listed = [], self.table.arms if self.table else []
        if self.blocked and self.blocked.revision not in [arm.revision for arm in listed]:
            found.append(self.blocked)
        if self.route and self.route.blocked and self.route.blocked.revision not in self.route.weights:
            found.append(self.route.blocked)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Callers:
    """Whom policy servers serve, as the installation decides."""

    known_by: str = "anybody"
    """token: by a service-account token of audience learnloop; anybody: nobody is asked."""
    namespaces: tuple[str, ...] = ()
    """Whose accounts are served beside those of the ModelDeployment's own namespace."""
    peers: tuple[Mapping[str, Any], ...] | None = None
    """networking/v1 NetworkPolicyPeers that may reach policy servers beside the pods of their own namespace and of its
    gateway; None: no NetworkPolicy is made."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the installation decides for every policy server."""

    image: str
    data_url: str
    image_pull_policy: str = "IfNotPresent"
    names_are_verified: bool = False
    """An admission policy lets nobody write another's name into a verb's annotation."""
    tls: bool = False
    """Servers have certificates of the data plane's making."""
    callers: Callers = Callers()
    four_eyes: bool = False
    """Who wrote the spec lets no canary of it on."""
    pods: PodRules = field(default_factory=PodRules)
    """What pods made for others may have."""
    model_servers: Mapping[str, str] = field(default_factory=dict)
    """Images of the servers of language models, by kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(BaseSnapshot):
    """Everything `decide` knows. Equal snapshots give equal plans."""

    spec: ModelDeploymentSpec
    before: ModelDeploymentStatus
    """The status as the last look left it."""
    ahead: timedelta = timedelta()
    """How far the API server's clock is ahead of `now`."""
    profile: ProfileStatus | None = None
    """The profile whose steps stand in `spec`."""
    unwritten_since: datetime | None = None
    """`before` is ahead of the persisted status since then; None: it is the persisted one."""
    desired: Desired
    arms: Mapping[str, ArmWorld] = field(default_factory=dict)
    routing: RoutingWorld = RoutingWorld()
    evidence: Evidence = field(default_factory=Evidence)
    direct: Mapping[str, PodEvidence] = field(default_factory=dict)
    """What the pods of each arm on trial said themselves, by revision; empty where nobody asked them."""
    suite_runs: Mapping[str, SuiteRun] = field(default_factory=dict)
    """The gates' suites, by the name of their Job."""
    reports_problem: str = ""
    """Why the suites' reports cannot be had; "" when they can."""
    defaults: Defaults
    fresh_key: str = field(default="", repr=False)
    """Newly drawn by gather for a ModelDeployment that has no key of its episodes yet; never the one in use."""
    route_problem: str = ""
    """gateway mode: why the HTTPRoute is not in force as it stands, in the words of its controller."""
    mirror_problem: str = ""
    """gateway mode with shadow steps: why the gateway cannot copy requests; "" when it can."""
    percent_problem: str = ""
    """gateway mode with shadow steps: why the gateway may copy every request where a share is asked."""

    @property
    def cluster_now(self) -> datetime:
        """`now` by the API server's clock: for moments that others have to read as we do."""
        return self.now + self.ahead

    @property
    def scheme(self) -> str:
        """How an arm is spoken to. A Gateway speaks plain HTTP to its backends."""
        return "https" if self.defaults.tls and self.spec.routing.mode == "service" else "http"

    @property
    def annotations(self) -> Mapping[str, str]:
        """What people said to the operator, as much of it as a status can hold."""
        return obeyed(self.object)
