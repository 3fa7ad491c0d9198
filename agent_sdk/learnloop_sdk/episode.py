"""One task from its first observation to its outcome. Every piece of it that one arm decided is one trajectory."""

import json
import logging
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Literal, Protocol

from learnloop_api.wire import routing, trajectory
from learnloop_sdk.errors import (
    ArmWithdrawn,
    Counters,
    FallbackOrdered,
    LearnloopError,
    PolicyUnavailable,
    Stopped,
    Throttled,
)
from learnloop_sdk.memory import MemoryClient, Recall
from learnloop_sdk.policy_client import PolicyClient
from learnloop_sdk.trajectory_encoding import Decision, flat, observed, plain, step

log = logging.getLogger(__name__)
FALLBACK_REVISION = "fallback"
EXTERNAL_REVISION = "external"
OVERRIDE_REVISION = "override"
MAX_REOPENINGS = 3
INTERVENTIONS = "interventions"
"""Outcome value: actions that the served policy's shield replaced. Training's shield counts by the same name."""
Status = Literal["completed", "error", "withdrawn"]


@dataclass(slots=True)
class Segment:
    """The part of an episode that one arm (or the fallback) decided. `overridden`: a person decided in it, so it is
    neither recorded nor reported."""

    episode_id: str
    revision: str
    opened: routing.OpenedEpisode | None
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    steps: list[dict[str, Any]] = field(default_factory=list)
    length: int = 0
    total: float = 0.0
    continues: str = ""
    last: Any = None
    overridden: bool = False
    memory: str = ""
    values: dict[str, float] = field(default_factory=dict)
    trajectory_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def see(self, observation: Any) -> None:
        """Keep the observation after the last step, if that step was recorded."""
        if self.length == len(self.steps):
            self.last = observation


class Loop(Protocol):
    """Parts of Learnloop that its episodes work with."""

    agent: str
    fallback: Callable[[Any], Any] | None
    counters: Counters
    policy: PolicyClient
    memory: MemoryClient

    @property
    def records(self) -> bool: ...

    async def spool(self, trajectory: Mapping[str, Any]) -> None: ...


class Episode:
    """`async with loop.episode(task) as episode:` act, record, act, record… See Learnloop.episode."""

    def __init__(
        self,
        loop: Loop,
        task: str,
        *,
        explore: bool,
        revision: str | None,
        metadata: Mapping[str, str] | None,
        joint_task: str | None = None,
    ) -> None:
        self._loop = loop
        self.task = task
        self.explore = explore
        self._external = revision
        self._recorded = loop.records
        self._metadata = dict(metadata or {})
        if joint_task is not None:
            if not joint_task or "<" in joint_task or ">" in joint_task:
                raise ValueError(f"joint_task: {joint_task!r} is not an id; give `joint_task` of the episode it helps")
            self._metadata[trajectory.JOINT_TASK] = joint_task
        self._segment: Segment | None = None
        self._decision: Decision | None = None
        self._reopenings = 0
        self._retrievals: list[str] = []
        self._values: dict[str, float] = {}
        self._result: dict[str, Any] | None = None
        self.success: bool | None = None
        self.episode_return = 0.0
        self.length = 0

    @property
    def segment(self) -> Segment:
        """The part in progress."""
        if self._segment is None:
            raise LearnloopError("the episode is not open: use `async with loop.episode(task) as episode`")
        return self._segment

    @property
    def episode_id(self) -> str:
        """Id of the part in progress."""
        return self.segment.episode_id

    @property
    def joint_task(self) -> str:
        """Id of the task that this episode is part of. Give it to the agents that help, for their own episodes: they
        then learn from the credit in this episode's `result`."""
        return self._metadata.setdefault(trajectory.JOINT_TASK, uuid.uuid4().hex)

    @property
    def trajectory_id(self) -> str:
        """Id of the recorded part in progress; people's feedback refers to it, also before the part arrives."""
        return self.segment.trajectory_id

    @property
    def revision(self) -> str:
        """Policy revision that decides now; "fallback" or the external agent's own where no arm decides; "override"
        after a person has decided."""
        return self.segment.revision

    async def __aenter__(self) -> "Episode":
        self._segment = await self._begin(stable_only=False)
        self._loop.counters.episodes_opened += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._loop.counters.episodes_completed += 1
            await self._finish("completed")
        elif issubclass(kind, Stopped | Throttled):
            self._loop.counters.episodes_withdrawn += 1
            await self._finish("withdrawn")
        elif issubclass(kind, Exception):
            self._loop.counters.episodes_failed += 1
            await self._finish("error")
        else:  # cancelled from outside: half an episode says nothing about its policy
            self._loop.counters.episodes_abandoned += 1

    async def recall(self, context: Mapping[str, Any], k: int = 5) -> Recall:
        """Recall memories; their retrieval id goes with the trajectory. Never raises because of the service."""
        recalled = await self._loop.memory.retrieve(context, k)
        if recalled.retrieval_id and len(self._retrievals) < 256:
            self._retrievals.append(recalled.retrieval_id)
        return recalled

    async def act(self, observation: Any, *, explore: bool | None = None) -> Any:
        """Get the policy's action for `observation` (numbers, flat or nested, or an array).

        A withdrawn arm is replaced by the stable one; the steps so far become a trajectory of their own. So do the
        steps before a person's override; later ones are not recorded. Raises PolicyUnavailable, PolicyFailed,
        InvalidObservation, Stopped, and Throttled, after which act can be called again.
        """
        numbers = flat(observation)
        while True:
            segment = self.segment
            if segment.opened is None:
                return self._decide_by_fallback(observation, numbers)
            try:
                sample = self.explore if explore is None else explore
                answer = await self._loop.policy.act(segment.opened, numbers, sample, segment.memory)
            except FallbackOrdered as error:
                if self._loop.fallback is None:
                    raise
                log.warning("episode %s: %s", segment.episode_id, error)
                await self._leave_to_person(numbers, FALLBACK_REVISION, None)
            except (ArmWithdrawn, PolicyUnavailable) as error:
                segment.see(numbers)
                await self._replace("withdrawn" if isinstance(error, ArmWithdrawn) else "error", error)
            else:
                if answer.override and not segment.overridden:
                    await self._leave_to_person(numbers, OVERRIDE_REVISION, segment.opened)
                self._loop.counters.actions_overridden += answer.override is not None
                self._decision = (numbers, plain(answer.action), answer.log_prob, answer.exploration, answer.q_value)
                self._loop.counters.actions += 1
                if answer.intervened is not None:  # behind a shield, an episode without an intervention has 0
                    segment.values[INTERVENTIONS] = segment.values.get(INTERVENTIONS, 0.0) + answer.intervened
                self.segment.memory = answer.memory or self.segment.memory  # a person's answer has none
                return answer.action

    async def _leave_to_person(self, numbers: list[float], revision: str, opened: routing.OpenedEpisode | None) -> None:
        """Close the part that the policy has played; later steps are not recorded."""
        old = self.segment
        old.see(numbers)
        self._loop.counters.episodes_withdrawn += 1
        self._segment = Segment(
            old.episode_id, revision, opened, continues=old.episode_id, overridden=True, memory=old.memory
        )
        await self._close(old, "withdrawn", None)

    def _decide_by_fallback(self, observation: Any, numbers: list[float]) -> Any:
        if self._loop.fallback is None:
            raise LearnloopError("this episode has no policy: it was opened for an agent that decides itself")
        action = plain(self._loop.fallback(observation))
        self._decision = (numbers, action, None, False, None)
        self._loop.counters.actions_by_fallback += 1
        return action

    def record(
        self,
        action: Any = None,
        reward: float = 0.0,
        terminated: bool = False,
        truncated: bool = False,
        *,
        observation: Any = None,
        next_observation: Any = None,
    ) -> None:
        """Record the result of an action: act's where `action` is left out, else the agent's own.

        Args:
            observation: needed only where act was not called.
            next_observation: observation after the step. Give it with the last step: learning estimates by it the
                value of an episode that a limit cut off.
        """
        decision, self._decision = self._decision, None
        if decision is None or (action is not None and action is not decision[1]):
            decision = self._as_done(decision, plain(action), observation)
        value = float(reward)
        if not math.isfinite(value):
            raise LearnloopError(f"record: reward is {value}, must be finite")
        segment = self.segment
        segment.length += 1
        segment.total += value
        self.length += 1
        self.episode_return += value
        if not self._recorded or segment.overridden:
            return
        if segment.length <= trajectory.MAX_STEPS:
            segment.steps.append(step(decision, value, terminated, truncated))
            segment.last = None if next_observation is None else self._encoded(next_observation)
        elif segment.length == trajectory.MAX_STEPS + 1:
            segment.last = decision[0]
            log.warning("episode %s: only its first %d steps are recorded", segment.episode_id, trajectory.MAX_STEPS)

    def _encoded(self, observation: Any) -> Any:
        """Encode as steps do: numbers where a policy decides, the agent's own format where it decides itself."""
        return flat(observation) if self._external is None else observed(observation)

    def set_aside(self) -> Decision:
        """Return act's last decision, for `take_up`: all members of a team act before any of them is rewarded."""
        decision, self._decision = self._decision, None
        if decision is None:
            raise LearnloopError("set_aside: call act first")
        return decision

    def take_up(self, decision: Decision) -> None:
        """Let the next `record` be about this decision."""
        self._decision = decision

    @staticmethod
    def _as_done(decision: Decision | None, own: Any, observation: Any) -> Decision:
        """Return the decision as the agent executed it: act's, or its own."""
        if decision is None or (own is not None and own != decision[1]):
            before = observation if observation is not None else decision[0] if decision else None
            if own is None or before is None:
                raise LearnloopError("record: give action and observation, or call act first")
            return observed(before), own, None, False, None
        return decision

    def outcome(self, success: bool | None = None, **values: float) -> None:
        """Report the outcome: success where the task defines it, and named measurements for the RewardPolicy.

        A completed episode counts as a success in rollouts unless it reports False.
        """
        if success is not None:
            self.success = success
        self.measure(values)

    def measure(self, values: Mapping[str, float]) -> None:
        """Report named measurements, whatever their names."""
        self._values |= {name: float(value) for name, value in values.items()}

    def result(
        self,
        output: Any = None,
        *,
        expected: Any = None,
        task_type: str = "",
        metadata: Mapping[str, Any] | None = None,
        agents: Sequence[str | Mapping[str, Any]] = (),
    ) -> None:
        """Set the task's result, for the RewardPolicy's evaluators to score. A later call replaces an earlier one.

        Args:
            output: a text, or any JSON value.
            expected: the correct output, where it exists.
            task_type: kind of the task, e.g. math; evaluators may be chosen by it.
            metadata: further JSON values.
            agents: participants, this agent included: names, or `{"agent": name, "without": reward of the others}`.

        Raises:
            TypeError: JSON cannot represent a value.
        """
        free = {"output": output, "expected": expected, "metadata": dict(metadata or {})}
        try:
            # A copy: the agent may go on writing into its own objects.
            copied: dict[str, Any] = json.loads(json.dumps(free, allow_nan=False))
        except ValueError as error:
            raise TypeError(f"the result cannot be sent as JSON: {error}; send texts and finite numbers") from None
        members = [item if isinstance(item, str) else dict(item) for item in agents]
        self._result = {"task_type": task_type, **copied, "agents": members}

    async def _begin(self, *, stable_only: bool, continues: str = "") -> Segment:
        if self._external is not None:
            return Segment(uuid.uuid4().hex, self._external, None, continues=continues)
        request = routing.OpenEpisode(agent=self._loop.agent, task=self.task[:1024], stable_only=stable_only)
        try:
            opened = await self._loop.policy.open(request)
        except ArmWithdrawn:  # gateway mode: the route still leads to a withdrawn server for a moment
            opened = await self._loop.policy.open(request.model_copy(update={"stable_only": True}))
        except PolicyUnavailable as error:
            if self._loop.fallback is None:
                raise
            log.warning("no policy server: the fallback decides: %s", error)
            ordered = isinstance(error, FallbackOrdered)
            return Segment(uuid.uuid4().hex, FALLBACK_REVISION, None, continues=continues, overridden=ordered)
        return Segment(opened.episode_id, opened.revision, opened, continues=continues)

    async def _replace(self, status: Status, cause: LearnloopError) -> None:
        """Close the part whose arm is lost and go on with the stable arm."""
        self._reopenings += 1
        if self._reopenings > MAX_REOPENINGS:
            raise PolicyUnavailable(f"{MAX_REOPENINGS} arms in a row were lost, the last: {cause}") from cause
        old = self.segment
        log.info("episode %s continues with stable: %s", old.episode_id, cause)
        following = await self._begin(stable_only=True, continues=old.episode_id)
        self._loop.counters.episodes_withdrawn += status == "withdrawn"
        await self._close(old, status, None)
        self._segment = following

    async def _finish(self, status: Status) -> None:
        segment, self._segment = self.segment, None
        if self._decision is not None:  # asked, and not carried out
            segment.see(self._decision[0])
        await self._close(segment, status, self.success if status == "completed" else None)

    async def _close(self, segment: Segment, status: Status, success: bool | None) -> None:
        """Spool the trajectory, which triggers training, and report the ending, which rollouts are judged by."""
        if segment.overridden:
            return
        if segment.steps:
            await self._loop.spool(self._trajectory(segment, status, success))
        if segment.opened is None:
            return
        ending = routing.EndEpisode(status=status, episode_return=segment.total, length=segment.length, success=success)
        try:
            await self._loop.policy.end(segment.opened, ending)
        except LearnloopError as error:
            self._loop.counters.end_failures += 1
            log.warning("outcome of episode %s not reported: %s", segment.episode_id, error)

    def _trajectory(self, segment: Segment, status: Status, success: bool | None) -> dict[str, Any]:
        """wire.Trajectory as plain data."""
        metadata = dict(self._metadata)
        if segment.continues:
            metadata["continues"] = segment.continues
        if segment.length > len(segment.steps):
            segment.steps[-1]["truncated"] = True  # it was not the episode's last one
            metadata["unrecorded_steps"] = str(segment.length - len(segment.steps))
        return {
            "trajectory_id": segment.trajectory_id,
            "agent": self._loop.agent,
            "task": self.task[:1024],
            "episode_id": segment.episode_id,
            "model_deployment": segment.opened.model_deployment if segment.opened else None,
            "policy_revision": segment.revision,
            "started_at": segment.started_at,
            "ended_at": datetime.now(UTC),
            "steps": segment.steps,
            "last_observation": segment.last,
            "outcome": {
                "status": status,
                "episode_return": segment.total,
                "success": success,
                "values": segment.values | self._values,
            },
            "result": self._result if status == "completed" else None,
            "retrieval_ids": list(self._retrievals),
            "metadata": metadata,
        }
