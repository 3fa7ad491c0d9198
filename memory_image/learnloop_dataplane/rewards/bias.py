"""Bias of rewards between groups: compares what groups of recorded episodes earn at equal outcomes.

Only episodes that PostgreSQL still has are compared: the warehouse keeps no labels.
"""

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import orjson
from cachetools import TTLCache

from learnloop_api.kinds.reward_policy import BiasCheck, RewardPolicySpec
from learnloop_api.wire.reward import BiasFigures, GroupGap
from learnloop_common.reward_rules.components import Episode, evaluate, needs_log
from learnloop_dataplane import data_keys, errors
from learnloop_dataplane.concurrency.limits import FairPlaces
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.rewards import dry_run, reward_tables

Outcome = Literal["success", "failure", "unsaid"]
OUTCOMES: dict[Outcome, str] = {
    "success": "successes",
    "failure": "failures",
    "unsaid": "episodes without a verdict",
}
MOST_CHARACTERS = 64
COMPARED = 20
"""Largest groups of a key."""
SHOWN = 20


@dataclass(frozen=True, slots=True)
class Earned:
    """One episode: its groups by key, its outcome, its reward before normalisation, and each component's part."""

    groups: Mapping[str, str]
    outcome: Outcome
    values: Sequence[float]


def earned(spec: RewardPolicySpec, rule: BiasCheck, row: Mapping[str, Any]) -> Earned:
    """Computes the reward of a recorded episode; a broken constraint caps it."""
    episode = reward_tables.read_episode(row)
    worth = evaluate(spec, episode)
    caps = [constraint.reward_at_most for constraint in spec.constraints if constraint.name in worth.broken]
    parts = [component.weight * worth.components[component.name] for component in spec.components]
    return Earned(groups_of(row, rule.group_by), _outcome(episode), [min([worth.raw, *caps]), *parts])


def _outcome(episode: Episode) -> Outcome:
    if episode.success is None:
        return "unsaid"
    return "success" if episode.success else "failure"


def groups_of(row: Mapping[str, Any], keys: Sequence[str]) -> dict[str, str]:
    """The episode's group by key; keys without a value are left out."""
    labels, metadata = orjson.loads(row["labels"] or "{}"), orjson.loads(row["result_metadata"] or "{}")
    groups = {}
    for key in keys:
        if key == "taskType":
            value: Any = row["task_type"]
        elif key.startswith("result."):
            value = metadata.get(key.removeprefix("result.metadata.")) if isinstance(metadata, dict) else None
        else:
            value = labels.get(key.removeprefix("metadata."))
        if isinstance(value, bool):
            value = "true" if value else "false"
        if isinstance(value, str | int | float) and value != "":
            groups[key] = "".join(c if c.isprintable() else " " for c in str(value)[:MOST_CHARACTERS])
    return groups


@dataclass(frozen=True, slots=True)
class Pair:
    """Two groups at one outcome: an array of shape (episodes, 1 + components) each."""

    key: str
    outcome: Outcome
    names: tuple[str, str]
    values: tuple[dry_run.Floats, dry_run.Floats]


def compare(spec: RewardPolicySpec, rule: BiasCheck, episodes: Sequence[Earned]) -> BiasFigures:
    """Compares all groups of each key with one another."""
    pairs: list[Pair] = []
    compared: dict[str, int] = {}
    left_out = 0
    for key in rule.group_by:
        by_group: dict[str, dict[Outcome, list[Sequence[float]]]] = defaultdict(lambda: defaultdict(list))
        for episode in episodes:
            if key in episode.groups:
                by_group[episode.groups[key]][episode.outcome].append(episode.values)
        sizes = Counter({name: sum(map(len, group.values())) for name, group in by_group.items()})
        largest = sorted(by_group, key=lambda name: (-sizes[name], name))[:COMPARED]
        enough = {
            name: {outcome: np.array(rows) for outcome, rows in by_group[name].items() if _enough(rule, rows)}
            for name in largest
            if any(_enough(rule, rows) for rows in by_group[name].values())
        }
        compared[key] = len(enough)
        left_out += len(by_group) - len(enough)
        for one, other in combinations(enough, 2):
            both = enough[one].keys() & enough[other].keys()
            pairs += [
                Pair(key, outcome, (one, other), (enough[one][outcome], enough[other][outcome]))
                for outcome in OUTCOMES
                if outcome in both
            ]
    components = [None, *(component.name for component in spec.components)]
    comparisons = len(pairs) * len(components)
    z = NormalDist().inv_cdf(1.0 - (1.0 - rule.confidence) / (2 * max(1, comparisons)))
    gaps = [_gap(pair, place, name, z) for pair in pairs for place, name in enumerate(components)]
    gaps.sort(key=lambda gap: (-gap.low, -gap.gap, gap.key, gap.groups, gap.outcome))
    suspected, reason, sentence = _finding(rule, gaps)
    return BiasFigures.model_validate(
        {
            "suspected": suspected,
            "reason": reason,
            "sentence": sentence[:1024],
            "episodes": len(episodes),
            "groups": compared,
            "groups_left_out": left_out,
            "comparisons": comparisons,
            "gaps": gaps[:SHOWN],
        }
    )


def _enough(rule: BiasCheck, rows: Sequence[Any]) -> bool:
    return len(rows) >= rule.minimum_episodes


def _gap(pair: Pair, place: int, component: str | None, z: float) -> GroupGap:
    """The difference of two means, with Welch's interval."""
    columns = [values[:, place] for values in pair.values]
    names, sizes = pair.names, (len(columns[0]), len(columns[1]))
    gap = float(columns[0].mean() - columns[1].mean())
    half = _half_width([float(column.var(ddof=1)) / len(column) for column in columns], sizes, z)
    if gap < 0:
        names, sizes, gap = names[::-1], sizes[::-1], -gap
    return GroupGap(
        key=pair.key,
        groups=names,
        outcome=pair.outcome,
        measure="reward" if component is None else "component",
        component=component,
        gap=gap,
        low=gap - half,
        high=gap + half,
        episodes=sizes,
    )


def _half_width(parts: Sequence[float], sizes: tuple[int, int], z: float) -> float:
    variance = sum(parts)
    if variance <= 0:
        return 0.0
    # Shares first: squares of tiny variances would be 0.
    shares = [part / variance for part in parts]
    freedom = 1.0 / sum(share**2 / (size - 1) for share, size in zip(shares, sizes, strict=True))
    return student(z, freedom) * math.sqrt(variance)


def student(z: float, freedom: float) -> float:
    """The quantile of Student's t where the normal distribution has `z` (Abramowitz & Stegun, 1964, 26.7.5); for
    `freedom` from 9 on."""
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92_160,
    )
    return z + math.fsum(term / freedom**power for power, term in enumerate(terms, 1))


def _finding(rule: BiasCheck, gaps: Sequence[GroupGap]) -> tuple[bool | None, str, str]:
    """Suspicion, reason and sentence. A gap of rewards is graver than one of a component."""
    if not gaps:
        sentence = f"no two groups have {rule.minimum_episodes} episodes of one outcome: too few to compare"
        return None, "NotEnoughEpisodes", sentence
    for measure, reason in (("reward", "RewardGap"), ("component", "ComponentGap")):
        if worst := next((gap for gap in gaps if gap.measure == measure and gap.low > rule.max_gap), None):
            return True, reason, _gap_sentence(rule, worst)
    # Without figures of the moment: the message stays while the finding does.
    return False, "NothingFound", f"no gap between groups is surely above {rule.max_gap:g} for the same outcome"


def _gap_sentence(rule: BiasCheck, gap: GroupGap) -> str:
    more, less = (name[:40] for name in gap.groups)
    verb = "earns" if gap.component is None else f"gets from component {gap.component}"
    figures = f"between {gap.low:.3g} and {gap.high:.3g} at {rule.confidence:.4g} confidence"
    counts = f"over {gap.episodes[0]} and {gap.episodes[1]} episodes"
    sentence = f"{gap.key}: {more} {verb} {gap.gap:.3g} more than {less} for the same outcome"
    return f"{sentence}: {figures}, {counts}, {OUTCOMES[gap.outcome]}; allowed is {rule.max_gap:g}"


AT_ONCE = 2
CHECK_SECONDS = 40.0
"""For a whole check, with the wait for its place."""
FRESH_SECONDS = 60.0
MAX_REMEMBERED = 1000
_AGENTS = """
SELECT a.name FROM agents a WHERE a.namespace = $1 AND a.registered_at IS NOT NULL
    AND ($2::text IS NULL OR a.reward_policy = $2) AND ($3::text[] IS NULL OR a.name = ANY($3))
"""


@dataclass(frozen=True)
class BiasQuery:
    """Episodes of agents that use the policy of this name, and of these agents."""

    policy: str | None = None
    agents: Sequence[str] | None = None


class BiasReader:
    """Checks policies of all namespaces: one of a namespace at a time, and two in a process."""

    def __init__(self, db: Database, cipher: data_keys.StepCipher = data_keys.PLAIN) -> None:
        self._db, self._cipher = db, cipher
        self._answers: TTLCache[tuple[str, str], BiasFigures] = TTLCache(MAX_REMEMBERED, FRESH_SECONDS)
        self._places = FairPlaces(AT_ONCE)

    async def read(self, namespace: str, spec: RewardPolicySpec, query: BiasQuery) -> BiasFigures:
        """The result of the check in `spec.bias` under the rest of `spec`; at most a minute old.

        Raises:
            Invalid: `spec.bias` is missing, or an evaluator's settings cannot be used.
            ApiError: 503, it took too long, with the wait for other checks.
        """
        if spec.bias is None:
            raise errors.Invalid("left out; name at least bias.groupBy", field="policy.bias", value=None)
        reward_tables.check_evaluators(spec)
        question = f"{spec.model_dump_json()}\n{query!r}".encode()
        key = (namespace, sha256(question).hexdigest())
        if (fresh := self._answers.get(key)) is not None:
            return fresh
        try:
            async with asyncio.timeout(CHECK_SECONDS), self._places.of(namespace):
                figures = await self._check(namespace, spec, spec.bias, query)
        except TimeoutError:
            raise errors.ApiError(
                503,
                f"the check took more than {CHECK_SECONDS:g} s; send it later, or look at fewer episodes",
                field="policy.bias.episodes",
                value=spec.bias.episodes,
                retry_after=30,
            ) from None
        self._answers[key] = figures
        return figures

    async def _check(self, namespace: str, spec: RewardPolicySpec, rule: BiasCheck, query: BiasQuery) -> BiasFigures:
        async with self._db.tenant(namespace) as connection:
            wanted = list(query.agents) if query.agents is not None else None
            agents = [row["name"] for row in await connection.fetch(_AGENTS, namespace, query.policy, wanted)]
        window = reward_tables.Window(rule.episodes, agents)
        episodes: list[Earned] = []
        async for page in reward_tables.pages(self._db, self._cipher, namespace, window, steps=needs_log(spec)):
            episodes += await asyncio.to_thread(lambda rows: [earned(spec, rule, row) for row in rows], page)
        return await asyncio.to_thread(compare, spec, rule, episodes)
