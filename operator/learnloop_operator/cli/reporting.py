"""`report`, `progress` and `rewards`: the record of an agent's runs, rollouts, weeks and rewards."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import typer

from learnloop_api.names import LABEL_AGENT
from learnloop_api.wire.deployment import ModelDeployed
from learnloop_common.foreign_text import figure, interval, plain
from learnloop_operator.cli.data_plane import DataPlaneAccess
from learnloop_operator.cli.objects import Cluster, CommandError, Object, condition
from learnloop_operator.cli.objects import status as status_of
from learnloop_operator.cli.text import rows, table
from learnloop_operator.core.times import parse
from learnloop_operator.core.times import text as duration

MOST_WEEKS, MOST_REWARDS = 104, 1000
PERIODS = {"day": timedelta(days=1), "week": timedelta(days=7), "all": timedelta(days=36500)}
SUSPECTED = "RewardHackingSuspected"
BIAS = "BiasSuspected"


def report(
    cluster: Cluster,
    plane: DataPlaneAccess,
    name: Annotated[str | None, typer.Argument(help="an agent, run or rollout; left out, all of the namespace")] = None,
    since: Annotated[Literal["day", "week", "all"], typer.Option(help="how far back")] = "week",
    output: Annotated[Literal["markdown", "json"], typer.Option("-o", "--output")] = "markdown",
) -> str:
    """Runs and rollouts of a day or a week, as markdown or JSON."""
    jobs = [body for body in cluster.every("trainingjobs") if _is_of(body, name)]
    rollouts = [body for body in cluster.every("modeldeployments") if _is_of(body, name)]
    if name and not jobs and not rollouts:
        raise CommandError(f"{name!r}: no agent, run or rollout of this name in {cluster.namespace}")
    now = datetime.now(UTC)
    begin = now - PERIODS[since]
    record = [event for body in rollouts for event in _record(plane, body["metadata"]["name"])]
    data = report_data(cluster.namespace, name, jobs, rollouts, record, begin, now)
    return json.dumps(data, indent=2, ensure_ascii=False) if output == "json" else markdown(data)


def _record(plane: DataPlaneAccess, name: str) -> Iterator[ModelDeployed]:
    """Promotions and rollbacks on record; a status forgets them with the next candidate."""
    query: dict[str, str] = {}
    while True:
        page = plane.ask("GET", f"/api/v1/models/{name}/deployed", query)
        yield from map(ModelDeployed.model_validate, page["deployed"])
        if not page.get("next"):
            return
        query = {"after": page["next"]}


def report_data(
    namespace: str,
    name: str | None,
    jobs: Iterable[Object],
    rollouts: Iterable[Object],
    record: Iterable[ModelDeployed],
    since: datetime,
    now: datetime,
) -> dict[str, Any]:
    """Runs that ended, promotions, rollbacks, and rollouts that wait for a person, as data.

    Args:
        record: promotions and rollbacks of these rollouts.
    """
    runs = [_run(body) for body in jobs if _within(status_of(body).get("finishedAt"), since)]
    events = sorted((one for one in record if one.deployed_at >= since), key=lambda one: one.deployed_at)
    return {
        "namespace": namespace,
        "of": name,
        "since": since.isoformat(timespec="seconds"),
        "until": now.isoformat(timespec="seconds"),
        "runs": sorted(runs, key=lambda item: str(item["finishedAt"])),
        "promoted": [_event(one) for one in events if one.outcome == "promotions"],
        "rolledBack": [_event(one) for one in events if one.outcome == "rollbacks"],
        "waiting": [item for body in rollouts if (item := _waits(body, namespace)) is not None],
    }


def markdown(data: dict[str, Any]) -> str:
    """The report for people."""
    subject = data["of"] or f"namespace {data['namespace']}"
    good = [item for item in data["runs"] if item["result"] == "Validated"]
    bad = [item for item in data["runs"] if item["result"] != "Validated"]
    return "\n".join(
        [
            f"# {subject}, {data['since'][:10]} to {data['until'][:10]}",
            "",
            f"{len(good)} of {_times(len(data['runs']), 'run')} {'was' if len(good) == 1 else 'were'} proven, "
            f"{_times(len(data['promoted']), 'promotion')}, {_times(len(data['rolledBack']), 'rollback')}, "
            f"{len(data['waiting'])} waiting for a person.",
            *_part("Improved", [_better(item) for item in good]),
            *_part("Refused or failed", [f"**{item['run']}**: {plain(item['why'])}" for item in bad]),
            *_part("Promoted", map(_line, data["promoted"])),
            *_part("Rolled back", map(_line, data["rolledBack"])),
            *_part(
                "Waiting for a person",
                [f"**{item['rollout']}**: {plain(item['why'])} (`{item['command']}`)" for item in data["waiting"]],
            ),
        ]
    )


def _part(title: str, lines: Iterable[str]) -> list[str]:
    shown = [f"- {line}" for line in lines]
    return ["", f"## {title}", "", *shown] if shown else []


def _run(body: Object) -> dict[str, Any]:
    status = status_of(body)
    started, ended = parse(status.get("startedAt")), parse(status.get("finishedAt"))
    return {
        "run": body["metadata"]["name"],
        "result": status.get("phase"),
        "why": condition(body, "Ready").get("message", ""),
        "algorithm": body["spec"].get("algorithm"),
        "finishedAt": status.get("finishedAt"),
        "seconds": (ended - started).total_seconds() if started and ended else None,
        "attempts": status.get("attempts"),
        "preemptions": status.get("preemptions") or 0,
        "evaluation": status.get("evaluation"),
        "baseline": status.get("baseline"),
        "gates": status.get("gates") or [],
        "artifact": status.get("artifact"),
    }


def _better(item: dict[str, Any]) -> str:
    new, old = item["evaluation"] or {}, item["baseline"] or {}
    took = f", {duration(item['seconds'])}" if item["seconds"] is not None else ""
    if not new or not old:
        return f"**{item['run']}** ({item['algorithm']}{took}): {plain(item['why'])}"
    gain = new["mean"] - old["mean"]
    return (
        f"**{item['run']}** ({item['algorithm']}{took}): held-out return {_interval(new)}, "
        f"{figure(abs(gain))} {'more' if gain >= 0 else 'less'} than {_interval(old)} before"
    )


def _interval(figures: dict[str, Any]) -> str:
    return interval(figures["mean"], figures["ciLow"], figures["ciHigh"])


def _event(event: ModelDeployed) -> dict[str, Any]:
    return {
        "rollout": event.model_deployment,
        "revision": event.revision,
        "at": event.deployed_at.isoformat(),
        "why": event.verdict or event.reason,
    }


def _line(item: dict[str, Any]) -> str:
    return f"**{item['rollout']}** {plain(str(item['revision']))}: {plain(str(item['why']))}"


def _times(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _waits(body: Object, namespace: str) -> dict[str, Any] | None:
    """A rollout that waits for a person: on hold, or at a step that needs approval."""
    status, name = status_of(body), body["metadata"]["name"]
    if status.get("phase") != "Paused":
        return None
    held = (status.get("hand") or {}).get("verb") == "pause"
    verb = "resume" if held else "approve"
    command = f"kubectl learnloop {verb} {name} -n {namespace}"
    return {"rollout": name, "why": status.get("verdict") or "", "command": command}


def _within(moment: str | None, since: datetime) -> bool:
    at = parse(moment)
    return at is not None and at >= since


def _is_of(body: Object, name: str | None) -> bool:
    metadata = body["metadata"]
    return name in (None, metadata["name"], (metadata.get("labels") or {}).get(LABEL_AGENT))


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
    ("PROMOTIONS", "promotions", _count),
    ("ROLLBACKS", "rollbacks", _count),
    ("FALSE", "false_rollbacks", _count),
)


CHANGES: Sequence[tuple[str, Callable[[float, float], str]]] = (
    ("success_rate", lambda old, new: f"succeeded in {new:.0%} of its episodes, {_points(new - old)}"),
    ("completion_seconds", lambda old, new: f"took {_number(new)} s for a success, {_relative(old, new)}"),
    ("turns", lambda old, new: f"took {_number(new)} turns for a success, {_relative(old, new)}"),
    ("satisfaction", lambda old, new: f"was rated {new:+.2f} by people, {_moved(new - old, 2)}"),
)
"""Fields, and the sentence about their first and last value."""


def progress(
    cluster: Cluster,
    plane: DataPlaneAccess,
    name: Annotated[str, typer.Argument(help="a LearningAgent")],
    weeks: Annotated[int, typer.Option(metavar="N", help="how many weeks back")] = 8,
) -> str:
    """The sentences, then the table, the oldest week first."""
    if not 1 <= weeks <= MOST_WEEKS:
        raise CommandError(f"--weeks {weeks}: give 1 to {MOST_WEEKS}")
    cluster.get("learningagents", name)
    counted: list[Object] = plane.ask("GET", f"/api/v1/agents/{name}/progress", {"weeks": str(weeks)})["weeks"]
    if not counted:
        return f"{name} has no episode, training or deployment in the last {weeks} weeks"
    # Columns without a figure in any week are left out.
    shown = [column for column in COLUMNS if any(week.get(column[1]) is not None for week in counted)]
    lines = [[text(week[field]) if week.get(field) is not None else "" for _, field, text in shown] for week in counted]
    return "\n".join([*sentences(name, counted), "", table([head for head, _, _ in shown], lines)])


def sentences(agent: str, weeks: Sequence[Object]) -> Iterator[str]:
    """Changes from the first week with a figure to the last one."""
    for field, sentence in CHANGES:
        counted = [week for week in weeks if week.get(field) is not None]
        if counted:
            first, last = counted[0], counted[-1]
            then = f" than in the week of {first['week']}" if first is not last else ""
            text = sentence(float(first[field]), float(last[field]))
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
    promoted, rolled_back, false = (
        int(sum(week.get(name) or 0 for week in weeks)) for name in ("promotions", "rollbacks", "false_rollbacks")
    )
    if promoted or rolled_back:
        though = f", {false} of them though as good as the others" if rolled_back else ""
        yield f"{_times(promoted, 'promotion')} and {_times(rolled_back, 'rollback')}{though}."


def _sum(weeks: Sequence[Object], count: str, rate: str, noun: str, verb: str) -> Iterator[str]:
    total = int(sum(week.get(count) or 0 for week in weeks))
    if total:
        good = round(sum((week.get(rate) or 0.0) * (week.get(count) or 0) for week in weeks))
        yield f"{good} of {_times(total, noun)} {'was' if good == 1 else 'were'} {verb}."


def _moved(difference: float, digits: int = 0) -> str:
    return f"{abs(difference):.{digits}f} {'more' if difference >= 0 else 'less'}"


def _relative(old: float, new: float) -> str:
    return f"{abs(new / old - 1.0):.0%} {'more' if new >= old else 'less'}" if old > 0 else f"{_moved(new - old, 1)}"


def _points(difference: float) -> str:
    return f"{abs(100 * difference):.0f} points {'more' if difference >= 0 else 'less'}"


def rewards(
    cluster: Cluster,
    plane: DataPlaneAccess,
    name: Annotated[str, typer.Argument(help="a LearningAgent")],
    limit: Annotated[int, typer.Option(metavar="N", help="how many episodes")] = 10,
) -> str:
    """The policy and what is suspected of it, then the rewards, newest first."""
    if not 1 <= limit <= MOST_REWARDS:
        raise CommandError(f"--limit {limit}: give 1 to {MOST_REWARDS}")
    agent = cluster.get("learningagents", name)
    policy = cluster.get("rewardpolicies", agent["spec"]["rewardPolicyRef"]["name"])
    query = {"agent_id": name, "limit": str(limit)}
    history: list[Object] = plane.ask("GET", "/api/v1/rewards/history", query)["rewards"]
    suspicion, bias, state = condition(policy, SUSPECTED), condition(policy, BIAS), status_of(policy)
    head = rows(
        [
            ("policy", f"{policy['metadata']['name']}, revision {state.get('revision') or 'not published yet'}"),
            ("dry-run", (state.get("dryRun") or {}).get("message")),
            ("suspicion", suspicion.get("message") if suspicion.get("status") != "False" else None),
            ("bias", bias.get("message") if bias.get("status") != "False" else None),
        ]
    )
    return f"{head}\n\n{_rewards(history) if history else 'no episode is rewarded yet'}"


def _rewards(history: list[Object]) -> str:
    names = list(dict.fromkeys(name for reward in history for name in reward["components"]))
    head = ("TIME", "TRAJECTORY", "REWARD", "RAW", "SURE", *map(str.upper, names), "BROKEN")
    return table(head, (_reward(reward, names) for reward in history))


def _reward(reward: Object, names: list[str]) -> tuple[str, ...]:
    parts = reward["components"]
    return (
        reward["computed_at"][:19].replace("T", " "),
        reward["trajectory_id"],
        f"{reward['reward']:.3f}",
        f"{reward['raw_reward']:.3f}",
        f"{reward['confidence']:.0%}",
        *(f"{parts[name]:g}" if name in parts else "" for name in names),
        ", ".join(reward["violated"]),
    )
