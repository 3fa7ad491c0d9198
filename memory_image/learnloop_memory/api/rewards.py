"""Reward policies, calculation, history and dry-runs."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from pydantic import ConfigDict, Field, model_validator

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.wire.base import Identifier, Name, Timestamp
from learnloop_memory.api.bodies import alternatives, json_body
from learnloop_memory.api.common import Caller, Input, NamePath, Svc, answer, not_found
from learnloop_memory.rewards import store
from learnloop_memory.rewards.components import Episode, evaluate
from learnloop_memory.rewards.dry_run import Window
from learnloop_memory.rewards.normalise import confidence, settle

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

    model_config = ConfigDict(json_schema_extra=alternatives("agent_id", "reward_policy", at_most_one=False))

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


class AskDryRun(Input):
    """What would this policy change? Over the newest `limit` episodes received in [since, until)."""

    policy: RewardPolicySpec
    agent_ids: list[Name] | None = Field(default=None, min_length=1, max_length=100, description="left out: all")
    since: Timestamp = datetime(1970, 1, 1, tzinfo=UTC)
    until: Timestamp | None = Field(default=None, description="left out: now")
    limit: int = Field(default=100_000, ge=1, le=500_000)


@router.put("/policies/{name}/revisions/{revision}")
async def put_policy(
    name: NamePath,
    revision: RevisionPath,
    body: Annotated[RewardPolicySpec, json_body(RewardPolicySpec)],
    service: Svc,
    caller: Caller,
) -> Response:
    """Publishes an immutable revision; the same again is fine."""
    await store.put_policy(service.db, caller.namespace, name, revision, body)
    service.arrived(caller.namespace)
    return answer({"name": name, "revision": revision})


@router.get("/policies/{name}/revisions/{revision}/signals")
async def get_signals(name: NamePath, revision: RevisionPath, service: Svc, caller: Caller) -> Response:
    """Signs of reward hacking in the newest 1,000 rewards of a revision in force; at most a minute old."""
    found = await service.signals.read(caller.namespace, name, revision)
    if found is None:
        raise not_found("revision", revision, f"reward policy {name} has no such revision; publish it")
    return answer(found)


@router.post("/calculate")
async def calculate(body: Annotated[Calculate, json_body(Calculate)], service: Svc, caller: Caller) -> Response:
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
        worth = evaluate(policy.spec, episode)
        running = await store.statistics(connection, caller.namespace, body.agent_id or "", policy)
    reward, running = settle(policy.spec, worth, running)
    return answer(
        {
            "task_id": body.task_id,
            "reward_policy": policy.name,
            "reward_policy_revision": policy.revision,
            "components": worth.components,
            "raw_reward": worth.raw,
            "reward": reward,
            "confidence": confidence(policy.spec, worth, running),
            "violated": worth.broken,
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


@router.get("/credits/{trajectory_id}")
async def get_credits(trajectory_id: Annotated[Identifier, Path()], service: Svc, caller: Caller) -> Response:
    """What each step contributed to an episode's reward, as its policy's credit assignment says."""
    found = await store.step_credits(service.db, caller.namespace, trajectory_id)
    if found is None:
        raise not_found("trajectory_id", trajectory_id, "no reward of such a trajectory; wait for it, or check the id")
    return answer(found)


@router.post("/dry-run")
async def dry_run(body: Annotated[AskDryRun, json_body(AskDryRun)], service: Svc, caller: Caller) -> Response:
    """Ranks the logged history by a policy that is not in force and compares; keeps nothing. One at a time."""
    window = Window(body.since, body.until or datetime.now(UTC), body.limit, body.agent_ids)
    found = asdict(await service.dry_run.run(caller.namespace, body.policy, window))
    for item in found["most_changed"]:
        del item["place"]
    return answer(found)
