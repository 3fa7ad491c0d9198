"""Published revisions, parsed once, and the statistics a reward is normalised by, in one round trip."""

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import orjson
from cachetools import LRUCache

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_dataplane.audit.chain import note
from learnloop_dataplane.errors import ApiError, Invalid
from learnloop_dataplane.evaluators.registry import EVALUATORS
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.postgres.experience_tables import RewardPolicyRevision
from learnloop_dataplane.rewards.reward_tables import STATE, Policy, Running

MAX_KEPT = 256
_SCOPE = "FROM set_config('app.namespace', $1, true) AS s(namespace)"
_GET = f"""
SELECT p.spec {_SCOPE}, LATERAL (
    SELECT p.spec FROM reward_policy_revisions p
    WHERE p.namespace = s.namespace AND p.name = $2 AND p.revision = $3 OFFSET 0) p
"""
_STATISTICS = f"""
LEFT JOIN LATERAL (
    SELECT {STATE} FROM reward_statistics r WHERE r.namespace = $1 AND r.agent_id = $2
        AND r.reward_policy = p.name AND r.reward_policy_revision = p.revision OFFSET 0) r ON true
"""
_NAMED = f"""
SELECT p.*, r.* {_SCOPE}, LATERAL (
    SELECT p.name, p.revision FROM reward_policy_revisions p
    WHERE p.namespace = s.namespace AND p.name = $3 AND ($4::text IS NULL OR p.revision = $4)
    ORDER BY p.created_at DESC LIMIT 1) p {_STATISTICS}
"""
_OF_AGENT = f"""
SELECT p.*, r.* {_SCOPE}, LATERAL (
    SELECT p.name, p.revision FROM agents a JOIN reward_policy_revisions p
        ON p.namespace = a.namespace AND p.name = a.reward_policy AND p.revision = a.reward_policy_revision
    WHERE a.namespace = s.namespace AND a.name = $2 AND a.registered_at IS NOT NULL OFFSET 0) p {_STATISTICS}
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
        except Invalid as error:
            field = f"components[{index}].evaluator.{error.field}"
            raise Invalid(error.message, field=field, value=error.value) from None


class Policies:
    """Keeps the revisions that were asked for last, of all namespaces: a revision never changes, and none is deleted.
    One that is not there is asked for again.

    Args:
        arrived: called with a namespace in which episodes may wait for rewards.
    """

    def __init__(self, db: Database, arrived: Callable[[str], None]) -> None:
        self._db = db
        self._arrived = arrived
        self._kept: LRUCache[tuple[str, str, str], Policy] = LRUCache(MAX_KEPT)

    async def publish(self, namespace: str, name: str, revision: str, spec: RewardPolicySpec) -> None:
        """Keeps an immutable revision; the same again is fine.

        Raises:
            Invalid: an evaluator's settings cannot be used.
            ApiError: 409, this revision was published with another content.
        """
        check_evaluators(spec)
        wanted = spec.to_kube()
        row = RewardPolicyRevision(namespace=namespace, name=name, revision=revision, spec=wanted)
        async with self._db.session(namespace) as session:
            if await session.insert(row):
                digest = sha256(orjson.dumps(wanted, option=orjson.OPT_SORT_KEYS)).hexdigest()
                detail = {"revision": revision, "spec_sha256": digest}
                await note(session.raw, namespace, "reward.policy.published", f"reward-policy/{name}", detail)
        stored = await self.get(namespace, name, revision)
        if stored is None or stored.spec.to_kube() != wanted:
            raise ApiError(
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
        policy = self._kept.get(key)
        if policy is None:
            rows = await self._db.fetch_as(namespace, _GET, name, revision)
            if not rows:
                return None
            policy = Policy(name, revision, RewardPolicySpec.model_validate_json(rows[0]["spec"]))
            self._kept[key] = policy
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
