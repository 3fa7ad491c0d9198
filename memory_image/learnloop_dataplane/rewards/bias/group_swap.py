"""A recorded episode with its group swapped for another: the reward must not move.

Both groups' words take one another's places, so that who is told about whom stays told. What is outside of this process
is not asked again: a judge's verdict or a run of unit tests stays as it was recorded, and the answer names it.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from learnloop_api.kinds.reward_components import BiasCheck
from learnloop_api.kinds.reward_policy import RewardComponent, RewardPolicySpec
from learnloop_api.wire.reward import GroupSwap
from learnloop_common.reward_rules.components import Episode, evaluate, needs_log
from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.evaluators.evaluator import MAX_TEXT, Case, Tools
from learnloop_dataplane.evaluators.registry import EVALUATORS, score
from learnloop_dataplane.rewards.bias.group_moments import group_names
from learnloop_dataplane.rewards.reward_worker import read_episode

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
