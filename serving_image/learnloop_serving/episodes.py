"""The episodes API without HTTP: open, act, end. The episode is the unit of exposure; one arm owns it."""

import math
import random
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from learnloop_api.kinds.behaviour import GREEDY
from learnloop_api.wire.routing import (
    ActRequest,
    Arm,
    EndEpisode,
    OpenedEpisode,
    OpenEpisode,
    Override,
    RoutingTable,
    agent_tag,
)
from learnloop_common.acting.policy import Decision, Observations, Policy, advise, decide, read
from learnloop_serving import arm_choice, episode_ids, forwarding, routing_table_in_force, server_metrics, shadow
from learnloop_serving.refusals import Refusal, invalid, ordered

MOST_AGENTS = 4096
LONGEST_WAIT = 60
"""Seconds in a refusal at most: the limit may have changed by then."""


class Bucket:
    """Tokens that return at a rate (1/s); the rate may change."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate, self._left, self._at = rate, max(1.0, rate), now

    def wait(self, now: float, rate: float) -> float:
        """Seconds until there is a token at this rate; 0: there is one."""
        self._left = min(max(1.0, rate), self._left + (now - self._at) * self._rate)
        self._rate, self._at = rate, now
        return 0.0 if self._left >= 1.0 else (1.0 - self._left) / rate

    def take(self) -> None:
        self._left -= 1.0


class DecisionBuckets:
    """The buckets of the arm `revision` on this server; a change of the table's limits changes their rates."""

    def __init__(
        self, revision: str, routing: routing_table_in_force.RoutingState, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._revision, self._routing, self._clock = revision, routing, clock
        self._buckets: OrderedDict[str | None, Bucket] = OrderedDict()

    def take(self, tag: str) -> None:
        """Count a decision for the agent of `tag` ("": unknown).

        Raises:
            Refusal: 429 with the time to wait: the decisions are used up.
        """
        now = self._clock()
        rates = {key: rate for key, rate in zip((None, tag), self._rates(), strict=True) if rate is not None}
        if not rates:
            self._buckets.clear()
            return
        buckets = {key: self._bucket(key, rate, now) for key, rate in rates.items()}
        self._buckets |= buckets
        while len(self._buckets) > MOST_AGENTS:
            self._buckets.popitem(last=False)
        wait = max(bucket.wait(now, rates[key]) for key, bucket in buckets.items())
        if wait > 0.0:
            seconds = math.ceil(min(LONGEST_WAIT, wait))
            text = f"spec.decisionLimits: this server's part of the decisions is used up: ask again in {seconds} s"
            raise Refusal(429, "Throttled", text, retry_after=seconds)
        for bucket in buckets.values():
            bucket.take()

    def _bucket(self, key: str | None, rate: float, now: float) -> Bucket:
        return self._buckets.pop(key) if key in self._buckets else Bucket(rate, now)

    def _rates(self) -> tuple[float | None, float | None]:
        """Decisions in a second of all agents, and of one."""
        table = self._routing.table
        if table is None or table.limits is None:
            return None, None
        arm = next((one for one in table.arms if one.revision == self._revision), None)
        part = arm.share if arm is not None and arm.share is not None else 1.0
        both = table.limits.per_second, table.limits.per_agent_per_second
        return both[0] and both[0] * part, both[1] and both[1] * part


REMEMBERED = 65_536
LONGEST_SECONDS = 86_400
"""An episode that ends later than this after its opening says nothing of the arm as it is compared now."""
COPIED_ROWS = 16
"""Rows of one batch request that are copied to the arm in shadow."""


class Remembered:
    """The last episodes of which something was counted."""

    def __init__(self) -> None:
        self._recent: OrderedDict[str, None] = OrderedDict()

    def is_new(self, episode_id: str) -> bool:
        """False when it was asked about before. The oldest are forgotten."""
        if episode_id in self._recent:
            self._recent.move_to_end(episode_id)
            return False
        self._recent[episode_id] = None
        if len(self._recent) > REMEMBERED:
            self._recent.popitem(last=False)
        return True

    def knows(self, episode_id: str) -> bool:
        """Was it asked about before?"""
        return episode_id in self._recent


class Episodes:
    """All an arm knows about episodes: nothing but which ones it has already counted as ended, or as failed."""

    def __init__(
        self,
        model_deployment: str,
        revision: str,
        mode: str,
        routing: routing_table_in_force.RoutingState,
        metrics: server_metrics.Metrics,
        seal: episode_ids.Seal,
    ) -> None:
        self._model_deployment = model_deployment
        self._revision = revision
        self._mode = mode
        self._routing = routing
        self._metrics = metrics
        self.ids = episode_ids.EpisodeIds(model_deployment, seal, routing.clock)
        self.mirror = shadow.MirrorQueue(revision, routing, metrics.shadow, seal)
        self.shadow = shadow.Shadow(revision, routing, metrics.shadow, seal)
        self.reach = forwarding.Reach(routing)
        self.stand_in = forwarding.StandIn(revision, routing, self.shadow)
        self._bank = arm_choice.CreditBank()
        self._random = random.Random()
        self._limits = DecisionBuckets(revision, routing)
        self._throttled = Remembered()
        self._ended = Remembered()
        self._failed = Remembered()
        self.policy: Policy | None = None

    @property
    def ready(self) -> bool:
        """Is there a policy and a routing table?"""
        return self.policy is not None and self.has_table

    @property
    def has_table(self) -> bool:
        return self._routing.table is not None

    def open(self, body: bytes, *, counted: bool = True) -> OpenedEpisode:
        """Give a new episode to an arm; raises Refusal 400, 403, 409, 410, 503. `counted`: it is expected to end."""
        try:
            request = OpenEpisode.model_validate_json(body or b"{}")
        except ValidationError as error:
            raise invalid(error) from error
        table = self._table()
        override = self._routing.overrides.now(agent_tag(request.agent))
        if override is not None and override.instead != "fixed":
            raise ordered(override)
        stable_only = request.stable_only or self._routing.expired
        if self._mode == "service":
            arm = arm_choice.choose_arm(table, self._bank, stable_only=stable_only, reached=self.reach.reached)
        else:
            arm = self._routed_arm(table, stable_only)
        if arm is None:
            raise Refusal(503, "NotReady", f"routing generation {table.generation} has no arm for new episodes")
        if counted:
            self.count_opened(arm.revision)
        return OpenedEpisode(
            episode_id=self.ids.make(arm.revision, request.agent),
            model_deployment=self._model_deployment,
            revision=arm.revision,
            role=arm.role,
            mode="service" if self._mode == "service" else "gateway",
            url=arm.url if self._mode == "service" else "",
        )

    def count_opened(self, revision: str) -> None:
        """An episode of `revision` was opened that is evidence once it has ended, and overdue until then."""
        self._metrics.opened(revision)

    def _routed_arm(self, table: RoutingTable, stable_only: bool) -> Arm | None:
        """Gateway mode: the gateway has chosen by sending the request here.

        A canary asked for stable names the stable arm instead: the header of the following requests leads there.
        """
        own = next((arm for arm in table.arms if arm.revision == self._revision), None)
        if stable_only:
            return arm_choice.stable_arm(table)
        if own is None:
            raise self._withdrawn(self._revision)
        return own

    def act(self, opening: episode_ids.Opening, arm: str | None, body: bytes) -> Decision:
        """Decide for one observation by the behaviour in the policy's file; greedily where the caller asks for it.

        Raises Refusal and PolicyError.
        """
        policy = self._check(opening, arm)
        self._check_serves()
        request, observation = self._observation(policy, body)
        try:
            memory = read(request.memory, policy.memory) if policy.memory else None
        except ValueError as error:
            raise Refusal(400, "InvalidInput", str(error)) from None
        (advice,) = advise(policy, observation, memory)
        behaviour = policy.behaviour if request.explore else GREEDY
        decision = decide(behaviour, policy.numbers, advice, self._random.random)
        if decision.intervened:
            self._metrics.interventions.inc()
        self.mirror.decided(opening.episode_id, request.observation, advice.action)
        return decision

    def by_person(self, opening: episode_ids.Opening) -> Override | None:
        """Override of an episode, where it fixes the action.

        Raises:
            Refusal: 403, 409: another override is in force.
        """
        override = self._routing.overrides.now(opening.tag)
        if override is not None and (override.instead != "fixed" or override.answer is not None):
            raise ordered(override)
        return override

    def count_decision(self, opening: episode_ids.Opening | None) -> None:
        """Take one of the decisions that this server may give; None: of a request that knows no episodes.

        Raises:
            Refusal: 429, there is none left.
        """
        try:
            self._limits.take(opening.tag if opening else "")
        except Refusal:
            if opening is not None:
                self._throttled.is_new(opening.episode_id)
            raise

    def touched(self, opening: episode_ids.Opening) -> bool:
        """Was it a person who decided, at any moment since the episode was opened?"""
        return self._routing.overrides.touched(opening.tag, opening.at)

    def _observation(self, policy: Policy, body: bytes) -> tuple[ActRequest, Observations]:
        try:
            request = ActRequest.model_validate_json(body)
        except ValidationError as error:
            raise invalid(error) from error
        size = len(request.observation)
        if policy.observations is not None and size != policy.observations:
            message = f"observation: has {size} numbers, revision {self._revision} takes {policy.observations}"
            raise Refusal(400, "InvalidInput", message)
        with np.errstate(over="ignore"):
            observation = np.array([request.observation], dtype=np.float32)
        if not np.isfinite(observation).all():
            raise Refusal(400, "InvalidInput", "observation: a number is beyond the range of float32 (3.4e38)")
        return request, observation

    def end(self, opening: episode_ids.Opening, arm: str | None, body: bytes) -> bool:
        """Count the outcome of an episode, once; says whether it was counted now. Open to withdrawn arms too."""
        self._check_arm(opening, arm)
        try:
            ending = EndEpisode.model_validate_json(body)
        except ValidationError as error:
            raise invalid(error) from error
        episode_id = opening.episode_id
        lasted = self._routing.clock.now() - opening.at
        if lasted > LONGEST_SECONDS:
            self._metrics.uncounted["late"].inc()
            return False
        if not self._ended.is_new(episode_id):
            self._metrics.uncounted["again"].inc()
            return False
        gave_up = ending.status == "error" and self._throttled.knows(episode_id)
        if gave_up or self.touched(opening):
            # An arm has no part in what a person or a limit did, good or bad; and it is not overdue either.
            self._metrics.ended("withdrawn", 0.0, lasted)
            return True
        self._metrics.ended(_outcome(ending), ending.episode_return, lasted)
        return True

    def fails_first(self, opening: episode_ids.Opening) -> bool:
        """Is this the episode's first request that failed here? Repeating it makes no further bad episode."""
        return self._failed.is_new(opening.episode_id)

    def serving(self) -> Policy:
        """The policy for requests that know no episodes; raises Refusal 403, 409, 410, 503."""
        override = self._routing.overrides.now("")
        if override is not None:  # a tensor has no place for a fixed action, and the policy must not answer
            raise ordered(override)
        policy = self.loaded()
        self._check_serves()
        return policy

    def inferred(self, observation: Observations, action: NDArray[Any]) -> None:
        """Stable has answered a request that knows no episodes; the first rows of it are copied."""
        if self.mirror.on:
            for row, chosen in zip(observation[:COPIED_ROWS], action[:COPIED_ROWS], strict=True):
                self.mirror.decided(None, row.tolist(), chosen.tolist())

    def _check_serves(self) -> None:
        """Raises Refusal 410 if this arm was withdrawn or is in shadow."""
        if not self._routing.lists(self._revision):
            raise self._withdrawn(self._revision)
        if self.shadow.on:
            message = f"revision {self._revision} of {self._model_deployment} is in shadow: reopen on stable"
            raise Refusal(410, "ArmWithdrawn", message)

    def _check(self, opening: episode_ids.Opening, arm: str | None) -> Policy:
        self._check_arm(opening, arm)
        return self.loaded()

    def _check_arm(self, opening: episode_ids.Opening, arm: str | None) -> None:
        """The arm that the caller names, and the one that the episode belongs to, must be this one."""
        for named in (arm, opening.revision):
            if named and named != self._revision:
                raise self._elsewhere(named)

    def loaded(self) -> Policy:
        """The policy; raises Refusal 503."""
        self._table()
        if self.policy is None:
            raise Refusal(503, "NotReady", "the policy is still being loaded")
        return self.policy

    def _table(self) -> RoutingTable:
        if self._routing.table is None:
            raise Refusal(503, "NotReady", "no routing table has been read yet")
        return self._routing.table

    def _elsewhere(self, arm: str) -> Refusal:
        """The caller's episode belongs to another arm: withdrawn if that one is gone, misdirected if it is there."""
        if self._routing.table is not None and not self._routing.lists(arm):
            return self._withdrawn(arm)
        message = (
            f"x-learnloop-arm: {arm[:80]!r}: this is arm {self._revision}; send the request to the episode's own arm"
        )
        return Refusal(421, "UnknownEpisode", message)

    def _withdrawn(self, arm: str) -> Refusal:
        return Refusal(
            410, "ArmWithdrawn", f"revision {arm[:80]} of {self._model_deployment} was withdrawn: reopen on stable"
        )


def _outcome(ending: EndEpisode) -> str:
    if ending.status != "completed":
        return ending.status
    return "failure" if ending.success is False else "success"
