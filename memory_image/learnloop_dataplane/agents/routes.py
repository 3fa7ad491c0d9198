"""Agents, what they may keep, and what they observed."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from learnloop_api.wire import base, deployment, memory_budget, reward, training_request, trajectory
from learnloop_dataplane.agents.agent_registry import progress
from learnloop_dataplane.api.route_input import (
    Caller,
    Db,
    Experience,
    Input,
    Memory,
    NamePath,
    answer,
    json_body,
    only,
    same,
)
from learnloop_dataplane.experience.datasets import MOST_EPISODES

router = APIRouter(prefix="/api/v1", tags=["agents"])


class Registration(Input):
    """By which RewardPolicy revision new episodes of the agent are rewarded; without one they are only stored."""

    reward_policy: base.Name | None = None
    reward_policy_revision: str | None = Field(default=None, min_length=1, max_length=64)
    memory_group: base.Name | None = Field(
        default=None, description="its agents may recall from one another; left out, the agent is in none"
    )


@router.put("/agents/{agent}", dependencies=[only("update", "agents")])
async def put_agent(
    agent: NamePath, body: Annotated[Registration, json_body(Registration)], experience: Experience, caller: Caller
) -> Response:
    """Registers an agent, or moves it to another policy revision or group."""
    stats = (body.reward_policy, body.reward_policy_revision, body.memory_group)
    await experience.agents.register(caller.namespace, agent, *stats)
    return answer({"agent": agent, **body.model_dump()})


@router.put("/agents/{agent}/memory-budget", dependencies=[only("update", "memorybudgets")])
async def put_budget(
    agent: NamePath,
    body: Annotated[memory_budget.MemoryBudget, json_body(memory_budget.MemoryBudget)],
    memory: Memory,
    caller: Caller,
) -> Response:
    """How much the agent may keep; above, the least valuable memories that are not pinned are forgotten, soon."""
    await memory.budgets.put(caller.namespace, agent, body)
    return answer({"agent": agent, **body.model_dump()})


@router.get("/agents/{agent}/memory-budget", response_model=memory_budget.MemoryUse)
async def get_budget(agent: NamePath, memory: Memory, caller: Caller) -> Response:
    """The agent's budget, and how much of it is used."""
    return answer(await memory.budgets.use(caller.namespace, agent))


@router.delete("/agents/{agent}/memory-budget", status_code=204, dependencies=[only("delete", "memorybudgets")])
async def delete_budget(agent: NamePath, memory: Memory, caller: Caller) -> Response:
    """Takes the agent's own budget back; its LearningAgent's and the service's limit hold on."""
    await memory.budgets.drop(caller.namespace, agent)
    return Response(status_code=204)


@router.put("/agents/{agent}/training-orders/{order}", dependencies=[only("update", "deployments")])
async def put_training_order(
    agent: NamePath,
    order: Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")],
    body: Annotated[training_request.TrainingOrder, json_body(training_request.TrainingOrder)],
    experience: Experience,
    caller: Caller,
) -> Response:
    """Puts a person's order to train into the audit chain; the same again is fine (new: false)."""
    same("agent", agent, body.agent)
    return answer({"new": await experience.agents.ordered(caller.namespace, order, body)})


@router.delete("/agents/{agent}", status_code=204, dependencies=[only("delete", "agents")])
async def delete_agent(agent: NamePath, experience: Experience, caller: Caller) -> Response:
    """Removes the registration and the memory budget; experience stays until its retention ends."""
    await experience.agents.forget(caller.namespace, agent)
    return Response(status_code=204)


@router.get("/agents/{agent}/stats", response_model=reward.AgentStats)
async def get_stats(agent: NamePath, experience: Experience, caller: Caller) -> Response:
    """The figures the operator decides by."""
    return answer(await experience.agents.stats(caller.namespace, agent))


@router.get("/agents/{agent}/progress", response_model=deployment.AgentProgress)
async def get_progress(
    agent: NamePath, db: Db, caller: Caller, weeks: Annotated[int, Query(ge=1, le=deployment.MOST_WEEKS)] = 8
) -> Response:
    """Progress of an agent by week: success, time, turns, satisfaction, trainings and deployments."""
    return answer(await progress(db, caller.namespace, agent, weeks))


@router.get("/agents/{agent}/exploration", response_model=trajectory.ExplorationPage)
async def get_exploration(
    agent: NamePath,
    experience: Experience,
    caller: Caller,
    limit: Annotated[int, Query(ge=1, le=MOST_EPISODES, description="episodes to look at")] = 20,
    before: Annotated[int | None, Query(ge=0, le=2**62, description="`next` of the page before")] = None,
) -> Response:
    """The actions that were explored in the agent's newest episodes, with the digest that the audit chain has of each
    episode's."""
    return answer(await experience.explored.page(caller.namespace, agent, limit, before))


@router.get("/experience/observations")
async def get_observations(
    agent: Annotated[base.Name, Query()],
    experience: Experience,
    caller: Caller,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> Response:
    """The newest numeric observations, newest first."""
    observations = await experience.agents.observations(caller.namespace, agent, limit)
    return answer({"observations": observations})
