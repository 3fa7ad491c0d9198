"""What the data plane is told about a ModelDeployment: the model that serves, so that it can announce a change."""

from learnloop_api.wire.deployment import ModelDeployed
from learnloop_operator.core.plan import Call
from learnloop_operator.core.rollout.model.rollout_state import State
from learnloop_operator.core.rollout.model.snapshot import Snapshot
from learnloop_operator.core.times import stamp


def serving(snapshot: Snapshot, state: State, sentence: str) -> Call | None:
    """The call that tells it; None while nothing serves.

    The moment is that of this look: whoever tells it tells each revision once.
    """
    if state.stable is None:
        return None
    model, old = state.stable.model, state.previous
    event = ModelDeployed(
        model_deployment=snapshot.name,
        revision=model.revision,
        uri=model.uri,
        sha256=model.sha256 or None,
        previous_revision=old.revision if old else None,
        routing_mode=snapshot.spec.routing.mode,
        canary_weights=[step.weight for step in snapshot.spec.rollout.steps][:32],
        verdict=sentence[:1024],
        deployed_at=stamp(snapshot.now),
    )
    return Call("PUT", f"/api/v1/models/{snapshot.name}/deployed", event.model_dump(mode="json"))
