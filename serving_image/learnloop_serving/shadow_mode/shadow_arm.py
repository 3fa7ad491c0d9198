"""The arm in shadow: runs its policy on copies of live requests, compares, counts, and tells nobody what it thinks."""

import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from pydantic import ValidationError

from learnloop_api import names
from learnloop_api.wire.shadow import Ending, ShadowBatch, ShadowDecision
from learnloop_common.acting.deciding import Advice, log_probability
from learnloop_common.acting.policy import Policy, PolicyError, advise
from learnloop_serving.arms.routing_table import RoutingState
from learnloop_serving.arms.server_seal import Seal
from learnloop_serving.refusal import Refusal, invalid
from learnloop_serving.shadow_mode.importance_weights import OffPolicyWeights
from learnloop_serving.shadow_mode.mirror import PURPOSE
from learnloop_serving.shadow_mode.shadow_metrics import ShadowMetrics

T = TypeVar("T")


class Shadow:
    """One server's share of the copies."""

    def __init__(self, revision: str, routing: RoutingState, metrics: ShadowMetrics, seal: Seal) -> None:
        self._revision = revision
        self._routing = routing
        self._metrics = metrics
        self._seal = seal
        self._episodes = OffPolicyWeights()

    @property
    def on(self) -> bool:
        """Is this the arm in shadow? Then no user may get its answers."""
        table = self._routing.table
        return table is not None and table.mirror is not None and table.mirror.revision == self._revision

    def is_copy(self, arm: str | None) -> bool:
        """Is a request that names `arm` a copy made by the gateway? Its answer goes to nobody."""
        table = self._routing.table
        return (
            self.on and arm != self._revision and table is not None and bool(table.mirror and table.mirror.by_gateway)
        )

    def read(self, body: bytes, mark: str) -> ShadowBatch:
        """The copies of a POST /v1/shadow; raises Refusal 400, 403 when no server of this ModelDeployment sent them,
        and 410 when this arm is not the one in shadow."""
        if not self._seal.holds(PURPOSE, body, mark):
            self._metrics.unproven.inc()
            raise Refusal(403, "Unproven", f"{names.HEADER_MARK}: is not the mark of a server of this ModelDeployment")
        try:
            batch = ShadowBatch.model_validate_json(body)
        except ValidationError as error:
            raise invalid(error) from error
        if batch.revision != self._revision or not self.on:
            raise Refusal(410, "ArmWithdrawn", f"revision {batch.revision} is not in shadow at this server")
        return batch

    def take(self, policy: Policy, batch: ShadowBatch) -> None:
        """Run, compare and count every copy. Never raises for what the policy does."""
        for decision in batch.decisions:
            self._metrics.copies["server"].inc()
            self._decide(policy, decision)
        for ending in batch.endings:
            self._end(ending)

    def answer_copy(self, work: Callable[[], T]) -> T:
        """Do `work` for a copy made by the gateway, measured as such; whatever it raises is counted and raised."""
        self._metrics.copies["gateway"].inc()
        start = time.perf_counter()
        try:
            return work()
        except PolicyError:
            self._metrics.errors.inc()
            raise
        finally:
            self._metrics.observe(time.perf_counter() - start)

    def _decide(self, policy: Policy, decision: ShadowDecision) -> None:
        start = time.perf_counter()
        try:
            advice = _advice(policy, decision.observation)
        except PolicyError:
            self._metrics.errors.inc()
            return
        self._metrics.observe(time.perf_counter() - start)
        self._metrics.compared.inc()
        if self._same(advice.action, decision.greedy):
            self._metrics.agreed.inc()
        if decision.episode_id is None:
            return
        mine = None
        if decision.action is not None:
            mine = log_probability(policy.behaviour, policy.numbers, advice, decision.action)
        self._episodes.step(decision.episode_id, decision.log_prob, mine)

    def _same(self, mine: int | list[float], theirs: int | list[float]) -> bool:
        if isinstance(mine, int) or isinstance(theirs, int):
            return mine == theirs
        table = self._routing.table
        bound = table.mirror.max_distance if table and table.mirror else 0.0
        return len(mine) == len(theirs) and all(abs(a - b) <= bound for a, b in zip(mine, theirs, strict=True))

    def _end(self, ending: Ending) -> None:
        use, weight = self._episodes.end(ending.episode_id, ending.status == "completed", ending.length)
        self._metrics.played(use, weight, ending.episode_return)


def _advice(policy: Policy, observation: list[float]) -> Advice:
    """What the policy's network says of one observation; raises PolicyError."""
    if policy.observations is not None and len(observation) != policy.observations:
        raise PolicyError(f"observation has {len(observation)} numbers, the policy takes {policy.observations}")
    (advice,) = advise(policy, np.array([observation], dtype=np.float32))
    return advice
