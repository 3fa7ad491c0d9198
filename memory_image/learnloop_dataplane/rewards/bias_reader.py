"""A recorded episode with its group swapped for another: the reward must not move.

Both groups' words take one another's places, so that who is told about whom stays told. What is outside of this process
is not asked again: a judge's verdict or a run of unit tests stays as it was recorded, and the answer names it.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from typing import Any

import orjson
from cachetools import TTLCache

from learnloop_api.kinds.reward_components import BiasCheck
from learnloop_api.kinds.reward_policy import RewardComponent, RewardPolicySpec
from learnloop_api.wire.reward import BiasFigures, GroupSwap
from learnloop_common.reward_rules.components import Episode, evaluate, needs_log
from learnloop_dataplane.encryption.step_cipher import PLAIN, StepCipher
from learnloop_dataplane.errors import ApiError, Invalid, Unavailable
from learnloop_dataplane.evaluators.evaluator import MAX_TEXT, Case, Tools
from learnloop_dataplane.evaluators.registry import EVALUATORS, score
from learnloop_dataplane.evaluators.scorers import Scorers
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.rewards.bias import Tally, bias_figures, compare, group_names
from learnloop_dataplane.rewards.policies import check_evaluators
from learnloop_dataplane.rewards.reward_worker import LOG, NO_LOG, SCORES, read_episode

WORST = 3
SHORTEST = 3
"""Characters of a group's own name from which it counts as a word: shorter ones are words of some language."""


@dataclass(frozen=True)
class Look:
    """One episode to look at: the key, its group, and the group it is given."""

    key: str
    group: str
    other: str


@dataclass(frozen=True)
class Move:
    """How far one reward moved; None: nothing that the policy reads names the group."""

    trajectory_id: str
    by: float | None


def looks(rule: BiasCheck, named: Mapping[str, Sequence[str]], row: Mapping[str, Any]) -> list[Look]:
    """The swaps of one episode: by key at most one, for the next of the groups in `named` in a circle."""
    found = []
    for key, group in group_names(row, rule.group_by):
        groups = named.get(key, ())
        if group in groups and len(groups) > 1:
            other = groups[(groups.index(group) + 1) % len(groups)]
            found.append(Look(key, group, other))
    return found


def replacer(rule: BiasCheck, look: Look) -> Callable[[str], str]:
    """What puts the words of two groups in one another's places; whole words, in upper or lower case as they were."""
    words = {one.group: one.words for one in rule.swap}
    names = look.group, look.other
    both = [list(words[name]) for name in names] if set(names) <= words.keys() else [[], []]
    if min(map(len, names)) >= SHORTEST:
        both = [[*known, name] for known, name in zip(both, names, strict=True)]
    table: dict[str, str] = {}
    for one, other in zip(*both, strict=True):
        table.setdefault(one.casefold(), other)
        table.setdefault(other.casefold(), one)
    if not table:
        return lambda text: text
    longest = sorted(table, key=len, reverse=True)
    # The first letters are looked at before the words: most places of a text end there.
    firsts = "|".join(sorted({re.escape(word[0]) for word in table}))
    words_pattern = "|".join(map(re.escape, longest))
    pattern = re.compile(rf"(?<!\w)(?={firsts})(?:{words_pattern})(?!\w)", re.IGNORECASE)
    return lambda text: pattern.sub(lambda match: _shaped(match[0], table.get(match[0].casefold(), match[0])), text)


def _shaped(found: str, word: str) -> str:
    if len(found) > 1 and found.isupper():
        return word.upper()
    return word[:1].upper() + word[1:] if found[:1].isupper() else word


def swapped(value: Any, change: Callable[[str], str]) -> Any:
    """Any JSON with its texts changed; names of fields stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [swapped(item, change) for item in value]
    if isinstance(value, dict):
        return {key: swapped(item, change) for key, item in value.items()}
    return value


def kept_scores(spec: RewardPolicySpec) -> list[str]:
    """Components whose score stays as it was recorded."""
    return [item.name for item in spec.components if item.evaluator and not _asked(item)]


def _asked(component: RewardComponent) -> bool:
    """Not those that ask something outside of this process, nor those that look at earlier episodes, not at this one's
    output."""
    kind = component.evaluator.type if component.evaluator else ""
    return bool(kind) and not EVALUATORS[kind].slow and EVALUATORS[kind].needs_output


def characters(value: Any) -> int:
    """Of all texts in any JSON, names of fields included."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(characters, (*value, *value.values())))
    return sum(map(characters, value)) if isinstance(value, list) else 0


async def moves(
    spec: RewardPolicySpec, rule: BiasCheck, row: Mapping[str, Any], found: Sequence[Look], tools: Tools
) -> list[Move] | None:
    """One for each swap of an episode. None: it is left out, as it is too long or too deep to be read, or was not
    scored."""
    try:
        read = await asyncio.to_thread(_swaps, spec, rule, row, found)
        if read is None:
            return None
        case, episode, swaps = read
        before = await _worth(spec, episode, case, tools)
        told = []
        for swap in swaps:
            by = abs(await _worth(spec, swap[1], swap[0], tools) - before) if swap else None
            told.append(Move(row["trajectory_id"], by))
        return told
    except (RecursionError, Unavailable):
        # A score that is missing on one side only would look like a move.
        return None


def _swaps(
    spec: RewardPolicySpec, rule: BiasCheck, row: Mapping[str, Any], found: Sequence[Look]
) -> tuple[Case, Episode, list[tuple[Case, Episode] | None]] | None:
    """An episode, and what each swap makes of it; None for a swap that changes nothing. None: it is too long.

    All that takes time is here, off the event loop.
    """
    episode = read_episode(row)
    case = _case(row, episode)
    if sum(map(characters, (case.task, case.output, case.expected, list(episode.log)))) > MAX_TEXT:
        return None
    swaps: list[tuple[Case, Episode] | None] = []
    for look in found:
        change = replacer(rule, look)
        other_case = replace(
            case,
            task=change(case.task),
            output=swapped(case.output, change),
            expected=swapped(case.expected, change),
            task_type=look.other if look.key == "taskType" else case.task_type,
        )
        other = replace(episode, log=swapped(list(episode.log), change))
        swaps.append((other_case, other) if _differs(spec, case, other_case, episode, other) else None)
    return case, episode, swaps


def _differs(spec: RewardPolicySpec, case: Case, other: Case, episode: Episode, changed: Episode) -> bool:
    """Whether anything that the policy reads is another one now."""
    asked = any(_asked(component) for component in spec.components)
    return (asked and case != other) or (needs_log(spec) and list(episode.log) != list(changed.log))


async def _worth(spec: RewardPolicySpec, episode: Episode, case: Case, tools: Tools) -> float:
    scores = dict(episode.scores)
    for component in spec.components:
        if component.evaluator is not None and _asked(component):
            scores.pop(component.name, None)
            value = (await score(component.evaluator, case, tools)).value
            if value is not None:
                scores[component.name] = value
    worth = await asyncio.to_thread(evaluate, spec, replace(episode, scores=scores))
    caps = [constraint.reward_at_most for constraint in spec.constraints if constraint.name in worth.broken]
    return min([worth.raw, *caps])


def _case(row: Mapping[str, Any], episode: Episode) -> Case:
    result = orjson.loads(row["result"]) if row["result"] else {}
    return Case(
        agent=row["agent_id"],
        task=row["task"],
        task_type=result.get("task_type", ""),
        output=result.get("output"),
        expected=result.get("expected"),
        metadata=result.get("metadata", {}),
        success=episode.success,
        steps=episode.steps,
        values=episode.values,
    )


def summed_up(spec: RewardPolicySpec, rule: BiasCheck, all_moves: Sequence[Move], left_out: int = 0) -> GroupSwap:
    """What all of them say."""
    changed = [move for move in all_moves if move.by is not None]
    moved = [move for move in changed if move.by is not None and move.by > rule.max_move]
    worst = sorted(moved, key=lambda move: (-(move.by or 0.0), move.trajectory_id))
    return GroupSwap(
        episodes=len(all_moves),
        changed=len(changed),
        moved=len(moved),
        largest=max((move.by or 0.0 for move in changed), default=0.0),
        worst=list(dict.fromkeys(move.trajectory_id for move in worst))[:WORST],
        kept_scores=kept_scores(spec),
        left_out=left_out,
    )


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
        self._answers: TTLCache[tuple[str, str], BiasFigures] = TTLCache(MAX_REMEMBERED, FRESH_SECONDS)
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
        if (fresh := self._answers.get(key)) is not None:
            return fresh
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
        self._answers[key] = found
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
