"""Reward policies, calculation, history and dry-runs."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.wire.base import Identifier, Name, Timestamp
from learnloop_dataplane import errors
from learnloop_dataplane.api.route_input import (
    Caller,
    Db,
    Experience,
    Input,
    JsonBody,
    NamePath,
    answer,
    begins_after,
    by_hand,
    data_plane,
    following,
    identify,
    json_body,
    not_found,
    only,
    page_mark,
    quick,
)
from learnloop_dataplane.rewards import evaluator_scores, reward_tables
from learnloop_dataplane.rewards.bias import BiasQuery

router = APIRouter(prefix="/api/v1/rewards", tags=["rewards"])
RevisionPath = Annotated[str, Path(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


def _unpublished(name: str, revision: str) -> errors.ApiError:
    return not_found("revision", revision, f"reward policy {name} has no such revision; publish it")


class Calculate(Input):
    """A result to be rewarded by an agent's policy, by a named one, or by the default components."""

    task_id: Identifier | None = None
    agent_id: Name | None = None
    reward_policy: Name | None = None
    reward_policy_revision: str | None = Field(default=None, max_length=64)
    result: evaluator_scores.Result


_CALCULATE = JsonBody(Calculate)


class AskDryRun(Input):
    """A policy to be tried on the newest `limit` episodes received in [since, until)."""

    policy: RewardPolicySpec
    agent_ids: list[Name] | None = Field(default=None, min_length=1, max_length=100, description="left out: all")
    since: Timestamp = datetime(1970, 1, 1, tzinfo=UTC)
    until: Timestamp | None = Field(default=None, description="left out: now")
    limit: int = Field(default=20_000, ge=1, le=100_000)


class AskBias(Input):
    """A policy to be checked for bias on the newest `policy.bias.episodes`."""

    policy: RewardPolicySpec = Field(description="its `bias` says what a group is, and how large a gap may be")
    reward_policy: Name | None = Field(default=None, description="only agents that use the policy of this name")
    agent_ids: list[Name] | None = Field(default=None, min_length=1, max_length=100, description="left out: all")


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
    policy = await experience.policies.get(caller.namespace, name, revision)
    if policy is None:
        raise _unpublished(name, revision)
    return answer(policy.spec.to_kube())


@router.get("/policies/{name}/revisions/{revision}/signals")
async def get_signals(name: NamePath, revision: RevisionPath, experience: Experience, caller: Caller) -> Response:
    """Signs of reward hacking in the newest 1,000 rewards of a revision in force; at most a minute old."""
    signals = await experience.signals.read(caller.namespace, name, revision)
    if signals is None:
        raise _unpublished(name, revision)
    return answer(signals)


@router.post("/calculate", openapi_extra=by_hand(Calculate))
async def calculate(request: Request) -> Response:
    """Computes a reward and keeps nothing; normalised by the agent's history when an agent is named.

    Evaluators score `result.output`, shaping reads `result.steps`, and the reward is divided among `result.agents`.
    Without an agent and a policy: the default components, not normalised.
    """
    experience = data_plane(request).experience
    caller = await identify(request)
    body: Calculate = await _CALCULATE.receive(caller.namespace, await request.body())
    agent, namespace = body.agent_id or "", caller.namespace
    policy, running = None, reward_tables.Running()
    if body.reward_policy is not None:
        policy, running = await experience.policies.named(
            namespace, body.reward_policy, body.reward_policy_revision, body.agent_id
        )
    elif body.agent_id is not None:
        policy, running = await experience.policies.of_agent(namespace, agent)
    if policy is None and (body.reward_policy is not None or body.agent_id is not None):
        field = "reward_policy" if body.reward_policy is not None else "agent_id"
        raise not_found(field, body.reward_policy or agent, "no published reward policy; publish it")
    tools = experience.tools(namespace)
    return quick(
        await evaluator_scores.calculated(tools, body.result, policy, running, agent=agent, task_id=body.task_id)
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
    rewards = await reward_tables.history(db, caller.namespace, agent_id, limit, begins_after(after))
    last = rewards[-1] if len(rewards) == limit else None
    key = (last.trajectory_id, last.reward_policy, last.reward_policy_revision) if last else ()
    return answer({"rewards": rewards, "next": following(last.computed_at, *key) if last else None})


@router.get("/credits/{trajectory_id}")
async def get_credits(
    trajectory_id: Annotated[Identifier, Path()], db: Db, experience: Experience, caller: Caller
) -> Response:
    """Divides an episode's reward among its steps and its agents, as its policy says."""
    steps = await experience.step_credits(caller.namespace, trajectory_id)
    if steps is None:
        raise not_found("trajectory_id", trajectory_id, "no reward of such a trajectory; wait for it, or check the id")
    return answer({**steps, "agents": await experience.credits.of_task(caller.namespace, trajectory_id)})


@router.get("/credits")
async def get_agent_credits(
    agent_id: Annotated[Name, Query()],
    experience: Experience,
    caller: Caller,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    after: Annotated[str | None, page_mark(1)] = None,
) -> Response:
    """An agent's parts in the rewards of tasks that it worked on with others, newest first, page by page."""
    before = begins_after(after) or (datetime(9999, 12, 31, tzinfo=UTC), "")
    parts = await experience.credits.of_agent(caller.namespace, agent_id, limit, before)
    last = parts[-1] if len(parts) == limit else None
    mark = following(last["created_at"], last["trajectory_id"]) if last else None
    return answer({"credits": parts, "next": mark})


@router.post("/dry-run")
async def dry_run(body: Annotated[AskDryRun, json_body(AskDryRun)], experience: Experience, caller: Caller) -> Response:
    """Ranks the logged history by a policy that is not in force and compares; keeps nothing. One at a time."""
    window = reward_tables.Window(body.limit, body.agent_ids, body.since, body.until)
    return answer(asdict(await experience.dry_run.run(caller.namespace, body.policy, window)))


@router.post("/bias")
async def bias(body: Annotated[AskBias, json_body(AskBias)], experience: Experience, caller: Caller) -> Response:
    """Compares what groups of logged episodes earn at equal outcomes; keeps nothing. One of a namespace at a time; at
    most a minute old."""
    query = BiasQuery(body.reward_policy, body.agent_ids)
    return answer(await experience.bias.read(caller.namespace, body.policy, query))
