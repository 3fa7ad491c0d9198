"""What a bias check says: the gravest finding in one plain sentence, and the figures behind it. Pure."""

from learnloop_api.kinds.reward_components import BiasCheck
from learnloop_api.wire.reward import BiasFigures, GroupGap, GroupSwap
from learnloop_dataplane.rewards.bias.group_gaps import Gaps, limit_of
from learnloop_dataplane.rewards.bias.group_moments import Tally

SHOWN = 20
_REASONS = {"reward": "RewardGap", "component": "ComponentGap", "success": "SuccessGap"}
_OUTCOMES = {"success": "successes", "failure": "failures", "unsaid": "episodes without a verdict", "any": "all"}


def bias_figures(tally: Tally, rule: BiasCheck, gaps: Gaps, swapped: GroupSwap | None) -> BiasFigures:
    """A gap of rewards is graver than a reward that moves, and that than a gap of a component or of success."""
    too_large = {gap.measure: gap for gap in reversed(gaps.gaps) if gap.low > limit_of(rule, gap)}
    looked = bool(gaps.gaps) or bool(swapped and swapped.changed)
    suspected: bool | None = bool(too_large) or bool(swapped and swapped.moved)
    if "reward" in too_large:
        reason, sentence = "RewardGap", _gap_sentence(rule, too_large["reward"])
    elif swapped and swapped.moved:
        reason, sentence = "RewardMoves", _move_sentence(rule, swapped)
    elif too_large:
        gap = too_large.get("component") or too_large["success"]
        reason, sentence = _REASONS[gap.measure], _gap_sentence(rule, gap)
    elif not looked:
        suspected, reason = None, "NotEnoughEpisodes"
        sentence = f"no two groups have {rule.minimum_episodes} episodes of one outcome: too few to compare"
    else:
        reason, sentence = "NothingFound", _nothing(rule, gaps, swapped)
    return BiasFigures.model_validate(
        {
            "suspected": suspected,
            "reason": reason,
            "sentence": sentence[:1024],
            "episodes": tally.episodes,
            "groups": {key: len(names) for key, names in gaps.compared.items()},
            "groups_left_out": gaps.left_out,
            "comparisons": len(gaps.gaps),
            "gaps": gaps.gaps[:SHOWN],
            "swapped": swapped,
        }
    )


def _gap_sentence(rule: BiasCheck, gap: GroupGap) -> str:
    more, less = (name[:40] for name in gap.groups)
    figures = f"between {gap.low:.3g} and {gap.high:.3g} at {rule.confidence:.4g} confidence"
    counts = f"over {gap.episodes[0]} and {gap.episodes[1]} episodes"
    if gap.measure == "success":
        return f"{gap.key}: {more} succeeds more often than {less}, by {gap.gap:.1%} ({figures}) {counts}"
    what = "earns" if gap.measure == "reward" else f"gets from component {gap.component}"
    sentence = f"{gap.key}: {more} {what} {gap.gap:.3g} more than {less} for the same outcome"
    return f"{sentence}: {figures}, {counts}, {_OUTCOMES[gap.outcome]}; allowed is {rule.max_gap:g}"


def _move_sentence(rule: BiasCheck, swapped: GroupSwap) -> str:
    found = f"the group swapped, {swapped.moved} of {swapped.changed} rewards of recorded episodes moved"
    where = f"look at trajectories {', '.join(swapped.worst)}"
    return f"{found} by up to {swapped.largest:.3g}; allowed is {rule.max_move:g}; {where}"


def _nothing(rule: BiasCheck, gaps: Gaps, swapped: GroupSwap | None) -> str:
    """Without figures of the moment: it is a message that stays while the finding does."""
    parts = []
    if gaps.gaps:
        parts.append(f"no gap between groups is surely above {rule.max_gap:g} for the same outcome")
    if swapped and swapped.changed:
        parts.append("no reward moved when the group was swapped")
    elif swapped:
        parts.append("nothing that the policy reads names a group, so that swapping it said nothing")
    return "; ".join(parts)
