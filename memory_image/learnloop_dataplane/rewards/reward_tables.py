"""Rewards in tables: running statistics and normalisation by them, the episodes that rewards are computed from, and the
published revisions of policies, parsed once."""

import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any

import orjson
from cachetools import LRUCache

from learnloop_api.kinds.reward_policy import Normalisation, RewardPolicySpec
from learnloop_api.wire.reward import Reward, RewardRecord
from learnloop_common.reward_rules import components, step_rewards
from learnloop_dataplane import data_keys, errors
from learnloop_dataplane.audit.chain import note
from learnloop_dataplane.evaluators.all_evaluators import EVALUATORS
from learnloop_dataplane.postgres import database, experience_tables


@dataclass(frozen=True)
class Running:
    """Everything seen so far, in one pass (B. P. Welford, Technometrics 4(3), 1962).

    Attributes:
        count: how many values.
        mean: their mean.
        m2: their sum of squared deviations.
        low: the least, None before the first.
        high: the largest.
    """

    count: int = 0
    mean: float = 0.0
    m2: float = 0.0
    low: float | None = None
    high: float | None = None

    def add(self, value: float) -> "Running":
        """The statistics with one more value."""
        count = self.count + 1
        delta = value - self.mean
        mean = self.mean + delta / count
        return Running(
            count,
            mean,
            self.m2 + delta * (value - mean),
            value if self.low is None else min(self.low, value),
            value if self.high is None else max(self.high, value),
        )

    @property
    def std(self) -> float:
        """Population standard deviation; 0 for fewer than two values."""
        return math.sqrt(max(0.0, self.m2) / self.count) if self.count > 1 else 0.0


def normalise(raw: float, running: Running, rule: Normalisation) -> float:
    """The raw reward on the agent's own scale, within ±clip.

    `running` includes `raw` itself: with n values no z-score can then exceed (n-1)/√n, so the first few episodes of an
    agent cannot produce extremes. Without any spread yet, zscore and minmax give 0.
    """
    match rule.method:
        case "none":
            return components.bounded(raw, rule.clip)
        case "minmax":
            if running.low is None or running.high is None or running.high <= running.low:
                return 0.0
            return components.bounded((raw - running.low) / (running.high - running.low), rule.clip)
        case _:
            # Rounding leaves a little "spread" behind when every value was the same; that must not be divided by.
            if running.std <= 1e-9 * max(1.0, abs(running.mean)):
                return 0.0
            return components.bounded((raw - running.mean) / running.std, rule.clip)


def settle(spec: RewardPolicySpec, worth: components.Worth, running: Running) -> tuple[float, Running]:
    """The reward to store, and the statistics that include it.

    Constraints come after the bounds: nothing an episode achieved makes up for one it broke.
    """
    running = running.add(worth.raw)
    return min([scaled(spec, worth.raw, running), *step_rewards.limits(spec, worth)]), running


def scaled(spec: RewardPolicySpec, raw: float, running: Running) -> float:
    """A raw reward as stored ones are: on the agent's scale, within the bounds."""
    reward = normalise(raw, running, spec.normalisation)
    if spec.bounds is not None:
        reward = min(spec.bounds.maximum, max(spec.bounds.minimum, reward))
    return reward


def confidence(spec: RewardPolicySpec, worth: components.Worth, running: Running) -> float:
    """How far a reward can be trusted, 0 to 1: share of the weights that were measured × how settled the scale is.

    A scale learned from n episodes is off by about 1/√n standard deviations; without normalisation there is none.
    """
    settled = 1.0 if spec.normalisation.method == "none" else 1.0 - 1.0 / math.sqrt(max(1, running.count))
    return worth.coverage * settled


def policy_terms(spec: RewardPolicySpec) -> dict[str, Any]:
    """As the event agent.rl.reward.v1 has them."""
    rule = spec.normalisation
    return {
        "weights": {component.name: component.weight for component in spec.components},
        "evaluators": {
            component.name: component.evaluator.type for component in spec.components if component.evaluator is not None
        },
        "normalisation": {"method": rule.method, "clip": rule.clip},
    }


STATE = "count, mean, m2, low, high"
"""Columns of `reward_statistics`, as Running has them."""
_STATISTICS = f"""
SELECT {STATE} FROM reward_statistics
WHERE namespace = $1 AND agent_id = $2 AND reward_policy = $3 AND reward_policy_revision = $4
"""
_HISTORY = """
SELECT trajectory_id, agent_id AS agent, reward_policy, reward_policy_revision, components, raw_reward, reward,
    confidence, violated, h.created_at AS computed_at, task_id, credit_assigned, metadata, p.spec
FROM reward_history h LEFT JOIN reward_policy_revisions p
    ON p.namespace = h.namespace AND p.name = h.reward_policy AND p.revision = h.reward_policy_revision
WHERE h.namespace = $1 AND agent_id = $2
    AND (h.created_at, trajectory_id, reward_policy, reward_policy_revision) < ($4, $5, $6, $7)
ORDER BY h.created_at DESC, trajectory_id DESC, reward_policy DESC, reward_policy_revision DESC LIMIT $3
"""
_NEWEST = (datetime(9999, 12, 31, tzinfo=UTC), "", "", "")

_CREDITED = """
SELECT h.trajectory_id, h.agent_id AS agent, h.reward_policy, h.reward_policy_revision, h.reward, p.spec, s.steps
FROM reward_history h
JOIN reward_policy_revisions p
    ON p.namespace = $1 AND p.name = h.reward_policy AND p.revision = h.reward_policy_revision
JOIN training_transitions s ON s.namespace = $1 AND s.trajectory_id = h.trajectory_id
WHERE h.namespace = $1 AND h.trajectory_id = $2 ORDER BY h.created_at DESC LIMIT 1
"""


@dataclass(frozen=True)
class Policy:
    """One published revision."""

    name: str
    revision: str
    spec: RewardPolicySpec


async def statistics(connection: Any, namespace: str, agent: str, policy: Policy) -> Running:
    """The running statistics of an agent under a revision."""
    row = await connection.fetchrow(_STATISTICS, namespace, agent, policy.name, policy.revision)
    return Running(*row.values()) if row else Running()


async def step_credits(
    db: database.Database, namespace: str, trajectory_id: str, cipher: data_keys.StepCipher = data_keys.PLAIN
) -> dict[str, Any] | None:
    """The newest reward of an episode divided among its steps by the policy that gave it; None where there is none.

    Returns:
        `credits`, one number a step, which add up to `reward`; `shaping`, the part of the raw reward that potential-
        based shaping gave each step, all 0 without it; and whose reward it is.
    """
    async with db.tenant(namespace) as connection:
        row = await connection.fetchrow(_CREDITED, namespace, trajectory_id)
    if row is None:
        return None
    (row,) = await cipher.open_rows(db, namespace, [row], "steps")
    if row["steps"] is None:
        return None
    spec, log = RewardPolicySpec.model_validate_json(row["spec"]), orjson.loads(row["steps"])
    facts = {name: row[name] for name in ("agent", "reward_policy", "reward_policy_revision", "reward")}
    shaping = components.potential_terms(spec.shaping, log) if spec.shaping else [0.0] * len(log)
    return {
        "trajectory_id": trajectory_id,
        **facts,
        "credits": components.credits(spec.credit, row["reward"], log),
        "shaping": shaping,
    }


async def history(
    db: database.Database, namespace: str, agent: str, limit: int, before: tuple[Any, ...] | None = None
) -> list[RewardRecord]:
    """The newest rewards of an agent, newest first; those older than the one with this time, trajectory, policy and
    revision."""
    async with db.tenant(namespace) as connection:
        rows = await connection.fetch(_HISTORY, namespace, agent, limit, *(before or _NEWEST))
    return [_record(row) for row in rows]


def as_reward(row: Any) -> Reward:
    """A row of `reward_history`, with the `spec` of its revision, as it is announced."""
    fields = _fields(row)
    del fields["task_id"], fields["metadata"]
    return Reward.model_validate(fields)


def _record(row: Any) -> RewardRecord:
    return RewardRecord.model_validate(_fields(row))


def _fields(row: Any) -> dict[str, Any]:
    fields = {**row, **_parsed(row, "components", "violated", "metadata")}
    spec = fields.pop("spec")
    terms = _terms(spec) if spec else {}
    return {**fields, **terms, "credits": fields["metadata"].get("agents", [])}


@lru_cache(maxsize=256)
def _terms(spec: str) -> dict[str, Any]:
    return policy_terms(RewardPolicySpec.model_validate_json(spec))


def _parsed(row: Any, *names: str) -> dict[str, Any]:
    return {name: orjson.loads(row[name]) for name in names}


PAGE = 1000
# Steps are most of what a trajectory weighs: they are read only for policies that look at them.
LOG = f"(SELECT s.steps FROM training_transitions s WHERE {database.STEPS_OF})"
NO_LOG = "NULL::jsonb"
# The scores of evaluators under one revision.
SCORES = """(SELECT jsonb_object_agg(c.component, c.value) FILTER (WHERE c.value IS NOT NULL) FROM task_scores c
    WHERE c.namespace = t.namespace AND c.trajectory_id = t.trajectory_id AND c.reward_policy = {policy}
        AND c.reward_policy_revision = {revision})"""
# The newest come first, so that a limit keeps the episodes most like those that the policy will meet. Scores are those
# of the revision that rewarded the episode: a component of the same name asks its evaluator the same.
_PAGE = """
SELECT t.trajectory_id, t.received_at, t.agent_id, t.task, t.episode_return, t.success, t.steps, t.outcome_values,
    t.labels, r.task_type, r.result -> 'metadata' AS result_metadata, {log} AS log, {scores} AS scores
FROM trajectories t LEFT JOIN task_results r ON r.namespace = $1 AND r.trajectory_id = t.trajectory_id
WHERE t.namespace = $1 AND ($2::text[] IS NULL OR t.agent_id = ANY($2))
    AND t.received_at >= $3 AND (t.received_at, t.trajectory_id) < ($4, $5)
ORDER BY t.received_at DESC, t.trajectory_id DESC LIMIT $6
"""
_SCORES = SCORES.format(policy="c.reward_policy", revision="t.reward_policy_revision")


@dataclass(frozen=True)
class Window:
    """The newest `limit` episodes received in [since, until), of these agents (None: of all)."""

    limit: int
    agents: Sequence[str] | None = None
    since: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    until: datetime | None = None


async def pages(
    db: database.Database, cipher: data_keys.StepCipher, namespace: str, window: Window, *, steps: bool
) -> AsyncIterator[Sequence[Any]]:
    """Yields the episodes of a window page by page, with their steps where `steps` asks for them."""
    statement = _PAGE.format(log=LOG if steps else NO_LOG, scores=_SCORES)
    agents = list(window.agents) if window.agents is not None else None
    position, left = (window.until or datetime.now(UTC), ""), window.limit
    while left:
        size = min(PAGE, left)
        async with db.tenant(namespace) as connection:
            rows = await connection.fetch(statement, namespace, agents, window.since, *position, size)
        yield await cipher.open_rows(db, namespace, rows)
        if len(rows) < size:
            return
        left -= size
        position = rows[-1]["received_at"], rows[-1]["trajectory_id"]


def read_episode(row: Any) -> components.Episode:
    """The episode in a row of `trajectories` that was selected together with its `log`."""
    values, steps = orjson.loads(row["outcome_values"]), orjson.loads(row["log"]) if row["log"] else ()
    scores = orjson.loads(row["scores"]) if row.get("scores") else {}
    return components.Episode(row["episode_return"], row["success"], row["steps"], values, steps, scores=scores)


MAX_CACHED = 256
_SCOPE = "FROM set_config('app.namespace', $1, true) AS s(namespace)"
_GET = f"""
SELECT p.spec {_SCOPE}, LATERAL (
    SELECT p.spec FROM reward_policy_revisions p
    WHERE p.namespace = s.namespace AND p.name = $2 AND p.revision = $3 OFFSET 0) p
"""
_WITH_STATISTICS = f"""
LEFT JOIN LATERAL (
    SELECT {STATE} FROM reward_statistics r WHERE r.namespace = $1 AND r.agent_id = $2
        AND r.reward_policy = p.name AND r.reward_policy_revision = p.revision OFFSET 0) r ON true
"""
_NAMED = f"""
SELECT p.*, r.* {_SCOPE}, LATERAL (
    SELECT p.name, p.revision FROM reward_policy_revisions p
    WHERE p.namespace = s.namespace AND p.name = $3 AND ($4::text IS NULL OR p.revision = $4)
    ORDER BY p.created_at DESC LIMIT 1) p {_WITH_STATISTICS}
"""
_OF_AGENT = f"""
SELECT p.*, r.* {_SCOPE}, LATERAL (
    SELECT p.name, p.revision FROM agents a JOIN reward_policy_revisions p
        ON p.namespace = a.namespace AND p.name = a.reward_policy AND p.revision = a.reward_policy_revision
    WHERE a.namespace = s.namespace AND a.name = $2 AND a.registered_at IS NOT NULL OFFSET 0) p {_WITH_STATISTICS}
"""


def check_evaluators(spec: RewardPolicySpec) -> None:
    """Has every evaluator look at its settings.

    Raises:
        Invalid: field, value and fix.
    """
    for index, component in enumerate(spec.components):
        if component.evaluator is None:
            continue
        try:
            EVALUATORS[component.evaluator.type].check(component.evaluator)
        except errors.Invalid as error:
            field = f"components[{index}].evaluator.{error.field}"
            raise errors.Invalid(error.message, field=field, value=error.value) from None


class Policies:
    """Keeps the revisions that were asked for last, of all namespaces: a revision never changes, and none is deleted.
    One that is not there is asked for again.

    Args:
        arrived: called with a namespace in which episodes may wait for rewards.
    """

    def __init__(self, db: database.Database, arrived: Callable[[str], None]) -> None:
        self._db = db
        self._arrived = arrived
        self._cached: LRUCache[tuple[str, str, str], Policy] = LRUCache(MAX_CACHED)

    async def publish(self, namespace: str, name: str, revision: str, spec: RewardPolicySpec) -> None:
        """Keeps an immutable revision; the same again is fine.

        Raises:
            Invalid: an evaluator's settings cannot be used.
            ApiError: 409, this revision was published with another content.
        """
        check_evaluators(spec)
        wanted = spec.to_kube()
        row = experience_tables.RewardPolicyRevision(namespace=namespace, name=name, revision=revision, spec=wanted)
        async with self._db.session(namespace) as session:
            if await session.insert(row):
                digest = sha256(orjson.dumps(wanted, option=orjson.OPT_SORT_KEYS)).hexdigest()
                detail = {"revision": revision, "spec_sha256": digest}
                await note(session.raw, namespace, "reward.policy.published", f"reward-policy/{name}", detail)
        stored = await self.get(namespace, name, revision)
        if stored is None or stored.spec.to_kube() != wanted:
            raise errors.ApiError(
                409,
                "this revision is published with another spec; publish under a new revision",
                field="revision",
                value=revision,
            )
        self._arrived(namespace)

    async def get(self, namespace: str, name: str, revision: str) -> Policy | None:
        """The revision; None where it is not published.

        Raises:
            Unavailable: it is not kept, and PostgreSQL does not answer.
        """
        key = (namespace, name, revision)
        policy = self._cached.get(key)
        if policy is None:
            rows = await self._db.fetch_as(namespace, _GET, name, revision)
            if not rows:
                return None
            policy = Policy(name, revision, RewardPolicySpec.model_validate_json(rows[0]["spec"]))
            self._cached[key] = policy
        return policy

    async def named(
        self, namespace: str, name: str, revision: str | None, agent: str | None
    ) -> tuple[Policy | None, Running]:
        """A revision by name, without `revision` the newest; and an agent's statistics under it."""
        if revision is not None and agent is None:
            return await self.get(namespace, name, revision), Running()
        return await self._with_statistics(namespace, _NAMED, agent or "", name, revision)

    async def of_agent(self, namespace: str, agent: str) -> tuple[Policy | None, Running]:
        """The revision a registered agent's new episodes are rewarded by, when it is published; and its statistics."""
        return await self._with_statistics(namespace, _OF_AGENT, agent)

    async def _with_statistics(self, namespace: str, statement: str, *arguments: Any) -> tuple[Policy | None, Running]:
        rows = await self._db.fetch_as(namespace, statement, *arguments)
        if not rows:
            return None, Running()
        name, revision, *state = rows[0].values()
        running = Running() if state[0] is None else Running(*state)
        return await self.get(namespace, name, revision), running
