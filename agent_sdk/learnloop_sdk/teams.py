"""What one member of a team is worth: the outcome values that a RewardPolicy's `difference` component reads."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from learnloop_sdk.errors import LearnloopError

Part = TypeVar("Part")


def difference(worth: Callable[[Mapping[str, Part]], float], team: Mapping[str, Part], member: str) -> dict[str, float]:
    """The team's result with and without one member (Wolpert & Tumer, Advances in Complex Systems 4, 2001).

        episode.outcome(True, **difference(score, results, "scout"))

    Args:
        worth: what the result of these members would be worth; asked for all of them, and for all but `member`.
        team: what each did, by name.
        member: whose episode it is.

    Returns:
        `global` and `counterfactual`. A member gains by their difference only what the team gains by the member.

    Raises:
        LearnloopError: the team has no such member.
    """
    if member not in team:
        raise LearnloopError(f"difference: {member!r} is not in the team; it has {', '.join(sorted(team)) or 'nobody'}")
    others = {name: part for name, part in team.items() if name != member}
    return {"global": float(worth(dict(team))), "counterfactual": float(worth(others))}
