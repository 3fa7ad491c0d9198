"""`trace`, `why`, `progress` and `rewards`: a model's origin, a rollout's reasons, an agent's weeks and rewards."""

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import typer

from learnloop_operator.cli.cluster import Cluster
from learnloop_operator.cli.data_plane_access import DataPlaneAccess
from learnloop_operator.cli.objects import Object, condition, number, rows, status_of, table

EVENTS = 20


def trace(
    cluster: Cluster,
    name: Annotated[str, typer.Argument(help="a ModelDeployment")],
    arm: Annotated[Literal["stable", "canary", "previous"], typer.Option()] = "stable",
) -> str:
    """Deployment → run → reward policy → trajectories; says where the trail ends."""
    model = status_of(cluster.get("modeldeployments", name)).get(arm)
    if not model:
        return f"ModelDeployment {name} has no {arm} arm now: nothing to trace"
    pairs = [
        ("model", f"{name}/{model['revision']} ({arm})"),
        ("uri", model["uri"]),
        ("sha256", model.get("sha256")),
        ("served", _served(model)),
    ]
    job = _origin(cluster, model)
    if job is None:
        pairs.append(("origin", _no_origin(model)))
        return rows(pairs)
    return rows(pairs + _run(job) + _experience(cluster, job))


def _served(arm: Object) -> str | None:
    if arm.get("episodes") is None:
        return None
    return f"{arm['episodes']} episodes judged, mean return {number(arm.get('meanReturn')) or 'unknown'}"


def _origin(cluster: Cluster, arm: Object) -> Object | None:
    """The run whose artifact has this digest."""
    if not arm.get("sha256"):
        return None
    jobs = cluster.every("trainingjobs")
    proofs = [job for job in jobs if (status_of(job).get("artifact") or {}).get("sha256") == arm["sha256"]]
    return next(iter(proofs), None)


def _no_origin(arm: Object) -> str:
    if str(arm["uri"]).startswith("uniform://"):
        return "the uniform random policy: nothing was learned yet"
    return "no TrainingJob in this namespace made it: pinned from outside, or its job was deleted"


def _run(job: Object) -> list[tuple[str, str | None]]:
    state = status_of(job)
    proof, base = state.get("evaluation") or {}, state.get("baseline") or {}
    held_out = f"{number(proof.get('mean'))} [{number(proof.get('ciLow'))}, {number(proof.get('ciHigh'))}]"
    gates = "; ".join(
        f"{'passed' if gate['passed'] else 'FAILED'} {gate['message']}" for gate in state.get("gates", [])
    )
    spec = job["spec"]
    return [
        ("run", f"{job['metadata']['name']}: {spec['algorithm']}, {spec['totalSteps']} steps, {state.get('phase')}"),
        ("held out", f"{held_out} over {proof.get('episodes')} episodes" if proof else None),
        ("baseline", number(base.get("mean")) if base else None),
        ("gates", gates),
        ("trained", f"{state.get('startedAt')} to {state.get('finishedAt')}"),
        ("cost", cost_sentence(state["cost"]) if state.get("cost") else None),
    ]


def _experience(cluster: Cluster, job: Object) -> list[tuple[str, str | None]]:
    line = status_of(job).get("lineage") or {}
    policy = line.get("rewardPolicy")
    live = cluster.find("rewardpolicies", policy) if policy else None
    now = status_of(live).get("revision") if live else None
    then = line.get("rewardPolicyRevision")
    moved = f"; now {now}" if now and now != then else ""
    return [
        ("reward", f"{policy} revision {then}{moved}" if policy else None),
        ("agent", line.get("learningAgent")),
        (
            "experience",
            f"{line['trajectories']} trajectories when it began" if line.get("trajectories") is not None else None,
        ),
    ]


def why(cluster: Cluster, name: Annotated[str, typer.Argument(help="a ModelDeployment")]) -> str:
    """Verdict, blocked revisions, arms, evidence, and the log of decisions."""
    body = cluster.get("modeldeployments", name)
    state = status_of(body)
    if not state:
        return f"ModelDeployment {name}: the operator has not looked at it yet; is it running?"
    blocked = state.get("blockedRevision") or {}
    others = [
        block["revision"] for block in state.get("blockedRevisions") or () if block["revision"] != blocked["revision"]
    ]
    parts = [
        rows(
            [
                ("phase", state.get("phase")),
                ("verdict", state.get("verdict")),
                ("blocked", f"{blocked['revision']} since {blocked['at']}: {blocked['message']}" if blocked else None),
                ("also blocked", ", ".join(others) or None),
                *_arms(state),
                *_orders(state),
                ("shadow", (state.get("shadow") or {}).get("message")),
            ]
        )
    ]
    for more in (_evidence(state), _experiment(state), _decisions(state)):
        if more:
            parts.append(more)
    log = cluster.events(body)[-EVENTS:]
    if log:
        parts.append("\n".join(f"{item['at']:%H:%M:%S}  {item['reason']}: {item['note']}" for item in log))
    return "\n\n".join(parts)


def _arms(state: Object) -> list[tuple[str, str]]:
    arms = []
    for role in ("stable", "canary", "previous"):
        arm = state.get(role)
        if arm:
            message = f": {arm['message']}" if arm.get("message") else ""
            ready = f"{arm.get('readyReplicas') or 0}/{arm.get('replicas') or 0} ready"
            arms.append((role, f"{arm['revision']} {arm['uri']}, {ready}{message}{_figures(arm)}"))
    if state.get("promotedAt"):
        arms.append(("promoted", f"{state['stable']['revision']} at {state['promotedAt']}"))
    return arms


def _figures(arm: Object) -> str:
    shown = [
        f"{arm['episodes']} episodes" if arm.get("episodes") else "",
        f"mean return {arm['meanReturn']:g}" if arm.get("meanReturn") is not None else "",
        f"success rate {arm['successRate']:.1%}" if arm.get("successRate") is not None else "",
    ]
    return f"; {', '.join(filter(None, shown))}" if arm.get("episodes") else ""


def _orders(state: Object) -> list[tuple[str, str]]:
    """The order in force, and the model that undo would serve."""
    standing, last, orders = state.get("standingOrder"), state.get("lastStable"), []
    if standing:
        orders.append(("by hand", f"{standing['verb']} by {standing.get('by')} since {standing['at']}"))
    if last:
        orders.append(("undo", f"would go back to {last['uri']}"))
    return orders


def _evidence(state: Object) -> str:
    """One line per test: its result, the evidence that it still needs and about when that is due."""
    lines = []
    for item in state.get("evidence") or []:
        chances = [
            f"{text} {item[key]:.4f}"
            for key, text in (("chanceWorse", "P(worse)"), ("chanceFine", "P(not worse)"))
            if item.get(key) is not None
        ]
        due = f", about {item['estimatedAt']}" if item.get("estimatedAt") else ""
        more = f"{item['neededEpisodes']} more canary episodes{due}" if item.get("neededEpisodes") else ""
        # A ratio can only be breached, which ends the rollout: until then its verdict stays undecided.
        undecided = item["verdict"] == "undecided" and item.get("chanceFine") is None
        verdict = "no breach" if undecided else item["verdict"]
        result = "; ".join(filter(None, [verdict, *chances, more]))
        lines.append(f"{item['name']}: {item['claim']}: {result}")
    return "\n".join(["evidence", *(f"  {line}" for line in lines)]) if lines else ""


def _experiment(state: Object) -> str:
    """One line per arm: its weight, its result, and why it is out."""
    experiment = state.get("experiment")
    if not experiment:
        return ""
    lines = [f"experiment {experiment['id']}: {experiment['phase']}: {experiment.get('message') or ''}"]
    for arm in experiment.get("arms") or ():
        shown = "not compared yet"
        if arm.get("mean") is not None:
            shown = f"{arm['mean']:g} [{arm['low']:g}, {arm['high']:g}] over {arm['episodes']} episodes"
        better = f"P(better than stable) {arm['chanceBetter']:.4f}" if arm.get("chanceBetter") is not None else ""
        result = "; ".join(filter(None, [shown, better, arm["standing"], arm.get("message")]))
        lines.append(f"  {arm['name']} {arm['revision']} {arm['weight']} %: {result}")
    return "\n".join(lines)


def _decisions(state: Object) -> str:
    lines = []
    for item in state.get("decisions") or []:
        who = item.get("by") or "an unnamed author"
        claim = "" if item.get("verified") or not item.get("by") else " (as claimed)"
        where = f" at step {item['step']}" if item.get("step") else ""
        what = f"{item['verb']} {item.get('revision') or ''}".rstrip()
        lines.append(f"  {item['at']}  {what}{where} by {who}{claim}: {item['outcome']}: {item['message']}")
    return "\n".join(["decisions", *lines]) if lines else ""


SUSPECTED = "RewardHackingSuspected"
BIAS = "BiasSuspected"
COUNT, NUMBER, SHARE = "{:.0f}".format, "{:.3g}".format, "{:.0%}".format
COLUMNS: Sequence[tuple[str, str, Callable[[float], str]]] = (
    ("WEEK OF", "week", str),
    ("EPISODES", "episodes", COUNT),
    ("SUCCESS", "success_rate", SHARE),
    ("SECONDS", "completion_seconds", NUMBER),
    ("TURNS", "turns", NUMBER),
    ("SATISFACTION", "satisfaction", "{:+.2f}".format),
    ("REWARD", "raw_reward", NUMBER),
    ("TRAININGS", "trainings", COUNT),
    ("TRAINED", "training_success_rate", SHARE),
    ("GAIN", "gain_per_training", "{:+.3g}".format),
    ("CPU-HOURS", "cpu_hours", NUMBER),
    ("GPU-HOURS", "gpu_hours", NUMBER),
    ("MONEY", "money", NUMBER),
    ("CURRENCY", "currency", str),
    ("GAIN/HOUR", "gain_per_hour", "{:+.3g}".format),
    ("PROMOTIONS", "promotions", COUNT),
    ("ROLLBACKS", "rollbacks", COUNT),
    ("FALSE", "false_rollbacks", COUNT),
)


def progress(
    cluster: Cluster,
    plane: DataPlaneAccess,
    name: Annotated[str, typer.Argument(help="a LearningAgent")],
    weeks: Annotated[int, typer.Option(min=1, max=104, help="how many weeks back")] = 8,
) -> str:
    """A table of weeks, the oldest first."""
    cluster.get("learningagents", name)
    counted: list[Object] = plane.ask("GET", f"/api/v1/agents/{name}/progress", {"weeks": str(weeks)})["weeks"]
    if not counted:
        return f"{name} has no episode, training or deployment in the last {weeks} weeks"
    # Columns without a figure in any week are left out.
    shown = [column for column in COLUMNS if any(week.get(column[1]) is not None for week in counted)]
    lines = [[text(week[field]) if week.get(field) is not None else "" for _, field, text in shown] for week in counted]
    return table([head for head, _, _ in shown], lines)


def rewards(
    cluster: Cluster,
    plane: DataPlaneAccess,
    name: Annotated[str, typer.Argument(help="a LearningAgent")],
    limit: Annotated[int, typer.Option(min=1, max=1000, help="how many episodes")] = 10,
) -> str:
    """The policy and what is suspected of it, then the rewards, newest first."""
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


def cost_sentence(cost: Object) -> str:
    """e.g. 1.52 CPU-hours, 0.5 GPU-hours, 1.27 EUR; gained 361.2 per GPU-hour, 142 per EUR"""
    parts = [f"{cost['cpuHours']:.4g} CPU-hours"]
    parts += [f"{cost['gpuHours']:.4g} GPU-hours"] if cost["gpuHours"] else []
    parts += [f"{cost['money']:.4g} {cost['currency']}"] if "money" in cost else []
    text = ", ".join(parts)
    if "gainPerHour" not in cost:
        return text
    text += f"; gained {cost['gainPerHour']:g} per {'GPU' if cost['gpuHours'] else 'CPU'}-hour"
    return text + (f", {cost['gainPerMoney']:g} per {cost['currency']}" if "gainPerMoney" in cost else "")
