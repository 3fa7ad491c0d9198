"""Reward policies, calculation, history and dry-runs."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field

from learnloop_api.kinds.reward_components import Normalisation
from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.reward_rules.components import Episode, Worth, evaluate
from learnloop_api.wire.base import Identifier, Name, Timestamp
from learnloop_dataplane.api.http.dependencies import (
    Caller,
    Db,
    Experience,
    Input,
    NamePath,
    answer,
    by_hand,
    data_plane,
    identify,
    not_found,
    only,
    quick,
)
from learnloop_dataplane.api.http.json_bodies import JsonBody, json_body
from learnloop_dataplane.api.http.pagination import begins_after, following, page_mark
from learnloop_dataplane.rewards import reward_tables
from learnloop_dataplane.rewards.dry_run import Window
from learnloop_dataplane.rewards.normalisation import Running, confidence, settle

router = APIRouter(prefix="/api/v1/rewards", tags=["rewards"])
RevisionPath = Annotated[str, Path(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class Result(Input):
    """How a task went."""

    episode_return: float = 0.0
    success: bool | None = None
    steps: int = Field(default=1, ge=0, le=10_000_000)
    values: dict[str, float] = Field(default_factory=dict, max_length=64)

    def episode(self) -> Episode:
        """As the components read it."""
        return Episode(self.episode_return, self.success, self.steps, self.values)


class Calculate(Input):
    """What would this result be worth? By an agent's policy, by a named one, or by the default components."""

    task_id: Identifier | None = None
    agent_id: Name | None = None
    reward_policy: Name | None = None
    reward_policy_revision: str | None = Field(default=None, max_length=64)
    result: Result


_CALCULATE = JsonBody(Calculate)


class AskDryRun(Input):
    """What would this policy change? Over the newest `limit` episodes received in [since, until)."""

    policy: RewardPolicySpec
    agent_ids: list[Name] | None = Field(default=None, min_length=1, max_length=100, description="left out: all")
    since: Timestamp = datetime(1970, 1, 1, tzinfo=UTC)
    until: Timestamp | None = Field(default=None, description="left out: now")
    limit: int = Field(default=100_000, ge=1, le=500_000)


@router.put("/policies/{name}/revisions/{revision}", dependencies=[only("update", "rewardpolicies")])
async def put_policy(
    name: NamePath,
    revision: RevisionPath,
    body: Annotated[RewardPolicySpec, json_body(RewardPolicySpec)],
    experience: Experience,
    caller: Caller,
) -> Response:
    """Publishes an immutable revision; the same again is fine."""
    await experience.policies.publish(caller.namespace, name, revision, body)
    return answer({"name": name, "revision": revision})


@router.get("/policies/{name}/revisions/{revision}", response_model=RewardPolicySpec)
async def get_policy(name: NamePath, revision: RevisionPath, experience: Experience, caller: Caller) -> Response:
    """A published revision: its spec."""
    found = await experience.policies.get(caller.namespace, name, revision)
    if found is None:
        raise not_found("revision", revision, f"reward policy {name} has no such revision; publish it")
    return answer(found.spec.to_kube())


@router.get("/policies/{name}/revisions/{revision}/signals")
async def get_signals(name: NamePath, revision: RevisionPath, experience: Experience, caller: Caller) -> Response:
    """Signs of reward hacking in the newest 1,000 rewards of a revision in force; at most a minute old."""
    found = await experience.signals.read(caller.namespace, name, revision)
    if found is None:
        raise not_found("revision", revision, f"reward policy {name} has no such revision; publish it")
    return answer(found)


@router.post("/calculate", openapi_extra=by_hand(Calculate))
async def calculate(request: Request) -> Response:
    """Computes a reward and keeps nothing; normalised by the agent's history when an agent is named.

    Without an agent and a policy: the default components, not normalised, for there is no history to do it by.
    """
    policies = data_plane(request).experience.policies
    caller = await identify(request)
    body: Calculate = _CALCULATE.read(await request.body())
    if body.agent_id is None and body.reward_policy is None:
        spec = RewardPolicySpec(normalisation=Normalisation(method="none"))
        return _calculated(body, spec, evaluate(spec, body.result.episode()), Running(), None)
    if body.reward_policy is not None:
        policy, running = await policies.named(
            caller.namespace, body.reward_policy, body.reward_policy_revision, body.agent_id
        )
    else:
        policy, running = await policies.of_agent(caller.namespace, body.agent_id or "")
    if policy is None:
        field = "reward_policy" if body.reward_policy is not None else "agent_id"
        raise not_found(field, body.reward_policy or body.agent_id or "", "no published reward policy; publish it")
    worth = evaluate(policy.spec, body.result.episode())
    return _calculated(body, policy.spec, worth, running, policy)


def _calculated(
    body: Calculate, spec: RewardPolicySpec, worth: Worth, running: Running, policy: reward_tables.Policy | None
) -> Response:
    reward, running = settle(spec, worth, running)
    return quick(
        {
            "task_id": body.task_id,
            "reward_policy": policy.name if policy else None,
            "reward_policy_revision": policy.revision if policy else None,
            "components": worth.components,
            "raw_reward": worth.raw,
            "reward": reward,
            "confidence": confidence(spec, worth, running),
            "violated": worth.broken,
        }
    )


@router.get("/history")
async def get_history(
    agent_id: Annotated[Name, Query()],
    db: Db,
    caller: Caller,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    after: Annotated[str | None, page_mark(3)] = None,
) -> Response:
    """The newest rewards of an agent, newest first, page by page."""
    found = await reward_tables.history(db, caller.namespace, agent_id, limit, begins_after(after))
    last = found[-1] if len(found) == limit else None
    key = (last.trajectory_id, last.reward_policy, last.reward_policy_revision) if last else ()
    return answer({"rewards": found, "next": following(last.computed_at, *key) if last else None})


@router.get("/credits/{trajectory_id}")
async def get_credits(trajectory_id: Annotated[Identifier, Path()], db: Db, caller: Caller) -> Response:
    """What each step contributed to an episode's reward, as its policy's credit assignment says."""
    found = await reward_tables.step_credits(db, caller.namespace, trajectory_id)
    if found is None:
        raise not_found("trajectory_id", trajectory_id, "no reward of such a trajectory; wait for it, or check the id")
    return answer(found)


@router.post("/dry-run")
async def dry_run(body: Annotated[AskDryRun, json_body(AskDryRun)], experience: Experience, caller: Caller) -> Response:
    """Ranks the logged history by a policy that is not in force and compares; keeps nothing. One at a time."""
    window = Window(body.since, body.until or datetime.now(UTC), body.limit, body.agent_ids)
    found = asdict(await experience.dry_run.run(caller.namespace, body.policy, window))
    for item in found["most_changed"]:
        del item["place"]
    return answer(found)
