"""Reward policies, calculation and history."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field, model_validator

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.wire.base import Identifier, Name
from learnloop_memory.api.common import Caller, Input, NamePath, Svc, answer, not_found
from learnloop_memory.rewards import store
from learnloop_memory.rewards.components import Episode, raw_reward
from learnloop_memory.rewards.zscore import normalise

router = APIRouter(prefix="/api/v1/rewards", tags=["rewards"])
RevisionPath = Annotated[str, Path(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class Result(Input):
    """How a task went."""

    episode_return: float = 0.0
    success: bool | None = None
    steps: int = Field(default=1, ge=0, le=10_000_000)
    values: dict[str, float] = Field(default_factory=dict, max_length=64)


class Calculate(Input):
    """What would this result be worth? By an agent's policy, or by a named one."""

    task_id: Identifier | None = None
    agent_id: Name | None = None
    reward_policy: Name | None = None
    reward_policy_revision: str | None = Field(default=None, max_length=64)
    result: Result

    @model_validator(mode="after")
    def _one_policy(self) -> "Calculate":
        if self.agent_id is None and self.reward_policy is None:
            raise ValueError("name an agent_id or a reward_policy")
        return self


@router.put("/policies/{name}/revisions/{revision}")
async def put_policy(
    name: NamePath, revision: RevisionPath, body: RewardPolicySpec, service: Svc, caller: Caller
) -> Response:
    """Publishes an immutable revision; the same again is fine."""
    await store.put_policy(service.db, caller.namespace, name, revision, body)
    service.arrived(caller.namespace)
    return answer({"name": name, "revision": revision})


@router.post("/calculate")
async def calculate(body: Calculate, service: Svc, caller: Caller) -> Response:
    """Computes a reward and keeps nothing; normalised by the agent's history when an agent is named."""
    async with service.db.tenant(caller.namespace) as connection:
        if body.reward_policy is not None:
            policy = await store.get_policy(
                connection, caller.namespace, body.reward_policy, body.reward_policy_revision
            )
        else:
            policy = await store.find_policy(connection, caller.namespace, body.agent_id or "")
        if policy is None:
            field = "reward_policy" if body.reward_policy is not None else "agent_id"
            raise not_found(field, body.reward_policy or body.agent_id or "", "no published reward policy; publish it")
        episode = Episode(body.result.episode_return, body.result.success, body.result.steps, body.result.values)
        components, raw = raw_reward(policy.spec, episode)
        running = await store.statistics(connection, caller.namespace, body.agent_id or "", policy)
    reward = normalise(raw, running.add(raw), policy.spec.normalisation)
    return answer(
        {
            "task_id": body.task_id,
            "reward_policy": policy.name,
            "reward_policy_revision": policy.revision,
            "components": components,
            "raw_reward": raw,
            "reward": reward,
        }
    )


@router.get("/history")
async def get_history(
    agent_id: Annotated[Name, Query()],
    service: Svc,
    caller: Caller,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """The newest rewards of an agent, newest first."""
    return answer({"rewards": await store.history(service.db, caller.namespace, agent_id, limit)})
