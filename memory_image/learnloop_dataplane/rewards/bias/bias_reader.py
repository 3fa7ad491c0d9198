"""Reads the newest episodes for a bias check, and remembers the answer for a minute."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from typing import Any

from learnloop_api.kinds.reward_components import BiasCheck
from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.wire.reward import BiasFigures, GroupSwap
from learnloop_common.reward_rules.components import needs_log
from learnloop_dataplane.encryption.step_cipher import PLAIN, StepCipher
from learnloop_dataplane.errors import ApiError, Invalid
from learnloop_dataplane.evaluators.evaluator import Tools
from learnloop_dataplane.evaluators.scorers import Scorers
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.rewards.bias.findings import bias_figures
from learnloop_dataplane.rewards.bias.group_gaps import compare
from learnloop_dataplane.rewards.bias.group_moments import Tally
from learnloop_dataplane.rewards.bias.group_swap import Move, looks, moves, summed_up
from learnloop_dataplane.rewards.pending_episodes import LOG, NO_LOG, SCORES
from learnloop_dataplane.rewards.published_policies import check_evaluators
from learnloop_dataplane.rewards.reward_worker import read_episode

PAGE = 1000
SWAPPED = 200
"""Recorded episodes that are given another group."""
SWAP_PAGE = 20
AT_ONCE = 2
CHECK_SECONDS = 40.0
"""For a whole check: whoever asks waits no longer."""
FRESH_SECONDS = 60.0
MAX_REMEMBERED = 1000

_AGENTS = """
SELECT a.name FROM agents a WHERE a.namespace = $1 AND a.registered_at IS NOT NULL
    AND ($2::text IS NULL OR a.reward_policy = $2) AND ($3::text[] IS NULL OR a.name = ANY($3))
"""
_SCORES = SCORES.format(policy="c.reward_policy", revision="t.reward_policy_revision")
_READ = """t.trajectory_id, t.seq, t.received_at, t.agent_id, t.task, t.episode_return, t.success, t.steps,
    t.outcome_values, t.labels, r.task_type, r.result -> 'metadata' AS told, {log} AS log, {scores} AS scores"""
_FROM = "FROM trajectories t LEFT JOIN task_results r ON r.namespace = $1 AND r.trajectory_id = t.trajectory_id"
_PAGE = f"""
SELECT {_READ} {_FROM}
WHERE t.namespace = $1 AND t.agent_id = ANY($2::text[]) AND t.received_at >= $3
    AND (t.received_at, t.trajectory_id) < ($4, $5)
ORDER BY t.received_at DESC, t.trajectory_id DESC LIMIT $6
"""
_SOME = f"SELECT {_READ}, r.result {_FROM} WHERE t.namespace = $1 AND t.trajectory_id = ANY($2::text[])"


@dataclass(frozen=True)
class BiasQuery:
    """Whose episodes: of agents that use the policy of this name, of these agents; received in [since, until)."""

    policy: str | None = None
    agents: Sequence[str] | None = None
    since: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    until: datetime | None = None


class BiasReader:
    """Checks policies of all namespaces: one of a namespace at a time, and two in a process.

    Only episodes that PostgreSQL still has are looked at: the warehouse keeps no labels.
    """

    def __init__(self, db: Database, cipher: StepCipher = PLAIN, scorers: Scorers | None = None) -> None:
        self._db, self._cipher, self._scorers = db, cipher, scorers
        self._answers: dict[tuple[str, str], tuple[float, BiasFigures]] = {}
        self._busy: set[str] = set()

    async def read(self, namespace: str, spec: RewardPolicySpec, asked: BiasQuery) -> BiasFigures:
        """What the check in `spec.bias` finds under the rest of `spec`.

        Raises:
            Invalid: there is no such check, or an evaluator's settings cannot be used.
            ApiError: 429, another check of this namespace is running, or as many of others as run at once; 503, it
                took too long.
            Unavailable: PostgreSQL does not answer.
        """
        if spec.bias is None:
            raise Invalid("left out; name at least bias.groupBy", field="policy.bias", value=None)
        check_evaluators(spec)
        question = f"{spec.model_dump_json()}\n{asked!r}".encode()
        key = (namespace, sha256(question).hexdigest())
        known = self._answers.get(key)
        if known is not None and time.monotonic() - known[0] < FRESH_SECONDS:
            return known[1]
        if namespace in self._busy:
            raise ApiError(429, "another bias check of this namespace is running; send it later", retry_after=10)
        if len(self._busy) >= AT_ONCE:
            raise ApiError(429, f"{AT_ONCE} bias checks of other namespaces are running; send it later", retry_after=10)
        self._busy.add(namespace)
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                found = await self._check(namespace, spec, spec.bias, asked)
        except TimeoutError:
            raise ApiError(
                503,
                f"the check took more than {CHECK_SECONDS:g} s; send it later, or look at fewer episodes",
                field="policy.bias.episodes",
                value=spec.bias.episodes,
                retry_after=30,
            ) from None
        finally:
            self._busy.discard(namespace)
        while len(self._answers) >= MAX_REMEMBERED:
            del self._answers[next(iter(self._answers))]
        self._answers.pop(key, None)
        self._answers[key] = (time.monotonic(), found)
        return found

    async def _check(self, namespace: str, spec: RewardPolicySpec, rule: BiasCheck, asked: BiasQuery) -> BiasFigures:
        tally = Tally(spec, rule.group_by)
        async for page in self._pages(namespace, spec, rule, asked):
            await asyncio.to_thread(_count, tally, page)
        gaps = await asyncio.to_thread(compare, tally, rule)
        swapped = await self._swap(namespace, spec, rule, tally, gaps.compared)
        return bias_figures(tally, rule, gaps, swapped)

    async def _pages(self, namespace: str, spec: RewardPolicySpec, rule: BiasCheck, asked: BiasQuery) -> Any:
        async with self._db.tenant(namespace) as connection:
            wanted = list(asked.agents) if asked.agents is not None else None
            agents = [row["name"] for row in await connection.fetch(_AGENTS, namespace, asked.policy, wanted)]
        statement = _PAGE.format(log=LOG if needs_log(spec) else NO_LOG, scores=_SCORES)
        position, left = (asked.until or datetime.now(UTC), ""), rule.episodes
        while agents and left:
            size = min(PAGE, left)
            async with self._db.tenant(namespace) as connection:
                rows = await connection.fetch(statement, namespace, agents, asked.since, *position, size)
            yield await self._cipher.open_rows(self._db, namespace, rows)
            if len(rows) < size:
                return
            left -= size
            position = (rows[-1]["received_at"], rows[-1]["trajectory_id"])

    async def _swap(
        self,
        namespace: str,
        spec: RewardPolicySpec,
        rule: BiasCheck,
        tally: Tally,
        compared: Mapping[str, Sequence[str]],
    ) -> GroupSwap | None:
        named = {key: _candidates(rule, tally, key, compared.get(key, ())) for key in rule.group_by}
        wanted = _examples(tally, named)
        if not wanted:
            return None
        statement = _SOME.format(log=LOG if needs_log(spec) else NO_LOG, scores=_SCORES)
        scorer = partial(self._scorers.score, namespace) if self._scorers else None
        tools = Tools(scorer=scorer, namespace=namespace)
        told: list[Move] = []
        left_out = 0
        for start in range(0, len(wanted), SWAP_PAGE):
            some = wanted[start : start + SWAP_PAGE]
            async with self._db.tenant(namespace) as connection:
                rows = await connection.fetch(statement, namespace, some)
            rows = await self._cipher.open_rows(self._db, namespace, rows)
            for row in rows:
                found = await moves(spec, rule, row, looks(rule, named, row), tools)
                told += found or ()
                left_out += found is None
        return summed_up(spec, rule, told, left_out)


def _count(tally: Tally, page: Sequence[Any]) -> None:
    for row in page:
        tally.add(row, read_episode(row))


def _candidates(rule: BiasCheck, tally: Tally, key: str, compared: Sequence[str]) -> list[str]:
    """Groups that take one another's places: those with words that occur, else those that are compared."""
    worded = [one.group for one in rule.swap if one.group in tally.groups[key]]
    return worded if len(worded) > 1 else list(compared)


def _examples(tally: Tally, named: Mapping[str, Sequence[str]]) -> list[str]:
    """Ids of recorded episodes, of each group in turn."""
    lists = [tally.groups[key][group].examples for key, groups in named.items() if len(groups) > 1 for group in groups]
    deepest = max(map(len, lists), default=0)
    turns = (ids[place] for place in range(deepest) for ids in lists if place < len(ids))
    return list(dict.fromkeys(turns))[:SWAPPED]
