"""`kubectl learnloop progress AGENT`: what an agent got better at, week by week, in sentences and as a table."""

import argparse
from collections.abc import Callable, Iterator, Sequence

from learnloop_operator.cli.access import data_plane
from learnloop_operator.cli.access.cluster import Cluster, Object
from learnloop_operator.cli.access.data_plane import DataPlaneAccess
from learnloop_operator.cli.errors import CommandError

NAME = "progress"
MOST = 104

_Column = tuple[str, str, Callable[[float], str]]


def _share(value: float) -> str:
    return f"{value:.0%}"


def _signed(value: float) -> str:
    return f"{value:+.3g}"


def _number(value: float) -> str:
    return f"{value:.3g}"


def _count(value: float) -> str:
    return f"{value:.0f}"


COLUMNS: Sequence[_Column] = (
    ("WEEK OF", "week", str),
    ("EPISODES", "episodes", _count),
    ("SUCCESS", "success_rate", _share),
    ("SECONDS", "completion_seconds", _number),
    ("TURNS", "turns", _number),
    ("SATISFACTION", "satisfaction", lambda value: f"{value:+.2f}"),
    ("REWARD", "raw_reward", _number),
    ("TRAININGS", "trainings", _count),
    ("TRAINED", "training_success_rate", _share),
    ("GAIN", "gain_per_training", _signed),
    ("DEPLOYMENTS", "deployments", _count),
    ("DEPLOYED", "deployment_success_rate", _share),
    ("ROLLBACKS", "rollbacks", _count),
    ("FALSE", "false_rollbacks", _count),
)


CHANGES: Sequence[tuple[str, Callable[[float, float], str]]] = (
    ("success_rate", lambda old, new: f"succeeded in {new:.0%} of its episodes, {_points(new - old)}"),
    ("completion_seconds", lambda old, new: f"took {_number(new)} s for a success, {_relative(old, new)}"),
    ("turns", lambda old, new: f"took {_number(new)} turns for a success, {_relative(old, new)}"),
    ("satisfaction", lambda old, new: f"was rated {new:+.2f} by people, {_moved(new - old, 2)}"),
)
"""What is said of a figure's first and last value."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Whose, and how far back."""
    parser.add_argument("name", help="a LearningAgent")
    parser.add_argument("--weeks", type=int, default=8, metavar="N", help="the newest so many (%(default)s)")
    data_plane.arguments(parser)


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """The sentences, then the table, the oldest week first."""
    if not 1 <= options.weeks <= MOST:
        raise CommandError(f"--weeks {options.weeks}: give 1 to {MOST}")
    cluster.get("learningagents", options.name)
    path = f"/api/v1/agents/{options.name}/progress"
    weeks: list[Object] = DataPlaneAccess(cluster, options).ask("GET", path, {"weeks": str(options.weeks)})["weeks"]
    if not weeks:
        return f"{options.name} has no episode, training or deployment in the last {options.weeks} weeks"
    return "\n".join([*sentences(options.name, weeks), "", table(weeks)])


def sentences(agent: str, weeks: Sequence[Object]) -> Iterator[str]:
    """What changed from the first week that has a figure to the last one that has."""
    for field, said in CHANGES:
        known = [week for week in weeks if week.get(field) is not None]
        if known:
            first, last = known[0], known[-1]
            then = f" than in the week of {first['week']}" if first is not last else ""
            text = said(float(first[field]), float(last[field]))
            yield f"In the week of {last['week']} {agent} {text if then else text.rsplit(',', 1)[0]}{then}."
    yield from _sum(weeks, "trainings", "training_success_rate", "training", "proven")
    gains: list[tuple[float, int]] = [
        (float(week["gain_per_training"]), int(week["gains"]))
        for week in weeks
        if week.get("gain_per_training") is not None
    ]
    if gains:
        mean = sum(gain * count for gain, count in gains) / sum(count for _, count in gains)
        yield f"A training changed the held-out return by {_signed(mean)} on average."
    yield from _sum(weeks, "deployments", "deployment_success_rate", "deployment", "promoted to everybody")
    taken, false = (int(sum(week.get(name) or 0 for week in weeks)) for name in ("rollbacks", "false_rollbacks"))
    if taken:
        rollbacks = "1 deployment was" if taken == 1 else f"{taken} deployments were"
        as_well = "it did" if false == 1 else "they did"
        yield f"{rollbacks} rolled back, {false} of them though {as_well} as well as the others."


def table(weeks: Sequence[Object]) -> str:
    """One line a week; columns that no week has a figure for are left out."""
    shown = [column for column in COLUMNS if any(week.get(column[1]) is not None for week in weeks)]
    lines = [tuple(head for head, _, _ in shown)]
    for week in weeks:
        lines.append(tuple(text(week[field]) if week.get(field) is not None else "" for _, field, text in shown))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _sum(weeks: Sequence[Object], count: str, rate: str, noun: str, said: str) -> Iterator[str]:
    total = int(sum(week.get(count) or 0 for week in weeks))
    if total:
        good = round(sum((week.get(rate) or 0.0) * (week.get(count) or 0) for week in weeks))
        yield f"{good} of {total} {noun}{'' if total == 1 else 's'} {'was' if good == 1 else 'were'} {said}."


def _moved(difference: float, digits: int = 0) -> str:
    return f"{abs(difference):.{digits}f} {'more' if difference >= 0 else 'less'}"


def _relative(old: float, new: float) -> str:
    return f"{abs(new / old - 1.0):.0%} {'more' if new >= old else 'less'}" if old > 0 else f"{_moved(new - old, 1)}"


def _points(difference: float) -> str:
    return f"{abs(100 * difference):.0f} points {'more' if difference >= 0 else 'less'}"
