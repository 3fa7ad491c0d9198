"""The rollout that a verb steers: the object, its arms, and the signed annotation."""

from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import ValidationError

from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_api.names import verb_annotation
from learnloop_operator.cli.cluster import Cluster
from learnloop_operator.cli.objects import CommandError, Object, status_of
from learnloop_operator.rollout.state.snapshot import Desired, agent_status, resolve


@dataclass(frozen=True, slots=True)
class RolloutOrder:
    """One ModelDeployment as a person sees it."""

    cluster: Cluster
    name: str
    spec: Object
    status: Object

    @property
    def canary(self) -> Object | None:
        return self.status.get("canary")

    @property
    def held(self) -> Object | None:
        return self.status.get("standingOrder")

    @property
    def where(self) -> str:
        return f"step {self.status.get('stepText') or '0'} ({self.status.get('weight') or 0} %)"

    def trial(self) -> Object:
        """The canary.

        Raises:
            CommandError: there is none.
        """
        if self.canary is None:
            raise self.refusal("has no canary")
        return self.canary

    def winner(self) -> str | None:
        """Revision of the arm that has won the experiment and waits for its promotion."""
        experiment = self.status.get("experiment") or {}
        if experiment.get("phase") != "Won":
            return None
        winner = experiment["winner"]
        return next((str(arm["revision"]) for arm in experiment["arms"] if arm["name"] == winner), None)

    def waiting(self) -> str | None:
        """Revision of the model that waits for the end of the guard of another."""
        old, stable = self.status.get("previous"), self.status.get("stable") or {}
        if old is None or self.canary:
            return None
        try:
            spec = ModelDeploymentSpec.model_validate(self.spec)
        except ValidationError:
            return None
        model = wanted(self.cluster, spec, self.cluster.namespace).model
        return None if model is None or model.revision == stable.get("revision") else model.revision

    def challenger(self, name: str) -> str:
        """Revision of an arm that plays in the experiment under way.

        Raises:
            CommandError: there is none of that name.
        """
        playing = playing_arms(self.status)
        if name not in playing:
            named = ", ".join(sorted(playing)) or "none"
            raise CommandError(f"--arm {name!r} plays in no experiment of ModelDeployment {self.name!r}: {named} does")
        return playing[name]

    def at_step(self) -> str:
        """`REVISION/STEP` of the canary, or `REVISION` while its pods start."""
        step = self.status.get("step")
        revision = str(self.trial()["revision"])
        return revision if step is None else f"{revision}/{step + 1}"

    def refusal(self, why: str) -> CommandError:
        """An error that adds the rollout's phase and verdict."""
        verdict = self.status.get("verdict") or "the operator has not looked at it yet"
        return CommandError(f"ModelDeployment {self.name!r} {why} ({self.status.get('phase') or 'new'}): {verdict}")

    def order(self, verb: str, what: str) -> None:
        self.cluster.annotate("modeldeployments", self.name, {verb_annotation(verb): signed(self.cluster, what)})


def playing_arms(status: Object) -> dict[str, str]:
    """Revisions, by name, of the challengers that play in the experiment under way, or wait for its promotion."""
    experiment = status.get("experiment") or {}
    if experiment.get("phase") == "Finished":
        return {}
    arms = experiment.get("arms") or ()
    return {
        arm["name"]: str(arm["revision"]) for arm in arms if arm["name"] != "stable" and arm["standing"] == "playing"
    }


def look(cluster: Cluster, name: str, *, to_roll_back: bool = False) -> RolloutOrder:
    """The rollout to steer. `to_roll_back`: by an order that is obeyed while it is suspended, too.

    Raises:
        CommandError: there is none, or it is suspended and the order would wait.
    """
    body = cluster.get("modeldeployments", name)
    if (body.get("spec") or {}).get("suspend") and not to_roll_back:
        raise CommandError(
            f"spec.suspend of ModelDeployment {name!r} is true: set it to false first; until then only abort and "
            "reject are obeyed"
        )
    return RolloutOrder(cluster, name, body.get("spec") or {}, status_of(body))


def signed(cluster: Cluster, what: str) -> str:
    """`WHAT at WHEN by WHO`, the value of an annotation (learnloop_api.names). WHEN makes each value a new one."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    user = cluster.user()
    return f"{what} at {now} by {user}" if user else f"{what} at {now}"


def wanted(cluster: Cluster, spec: ModelDeploymentSpec, namespace: str) -> Desired:
    """The model that a ModelDeployment asks for, resolved as the operator does; or the problem."""
    reference = spec.model.learning_agent_ref
    agent = agent_status(cluster.find("learningagents", reference.name)) if reference else None
    return resolve(spec, agent, namespace)
