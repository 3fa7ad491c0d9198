"""`kubectl learnloop why NAME`: the last verdict and how it came to it."""

import argparse

from learnloop_operator.cli.access.cluster import Cluster, Object
from learnloop_operator.cli.text.aligned_rows import rows
from learnloop_operator.cli.text.aligned_rows import status as status_of

NAME = "why"
EVENTS = 20


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which rollout."""
    parser.add_argument("name", help="a ModelDeployment")


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Verdict, what is blocked, what is not as it should be, and the log of decisions."""
    body = cluster.get("modeldeployments", options.name)
    status = status_of(body)
    if not status:
        return f"ModelDeployment {options.name}: the operator has not looked at it yet; is it running?"
    blocked = status.get("blockedRevision") or {}
    others = [pin["revision"] for pin in status.get("blockedRevisions") or () if pin["revision"] != blocked["revision"]]
    parts = [
        rows(
            [
                ("phase", status.get("phase")),
                ("verdict", status.get("verdict")),
                ("blocked", f"{blocked['revision']} since {blocked['at']}: {blocked['message']}" if blocked else None),
                ("also blocked", ", ".join(others) or None),
                *_arms(status),
                *_orders(status),
                ("shadow", (status.get("shadow") or {}).get("message")),
            ]
        )
    ]
    for more in (_evidence(status), _experiment(status), _decisions(status)):
        if more:
            parts.append(more)
    log = cluster.events(body)[-EVENTS:]
    if log:
        parts.append("\n".join(f"{item['at']:%H:%M:%S}  {item['reason']}: {item['note']}" for item in log))
    return "\n\n".join(parts)


def _arms(status: Object) -> list[tuple[str, str]]:
    found = []
    for role in ("stable", "canary", "previous"):
        arm = status.get(role)
        if arm:
            said = f": {arm['message']}" if arm.get("message") else ""
            ready = f"{arm.get('readyReplicas') or 0}/{arm.get('replicas') or 0} ready"
            found.append((role, f"{arm['revision']} {arm['uri']}, {ready}{said}{_figures(arm)}"))
    if status.get("promotedAt"):
        found.append(("promoted", f"{status['stable']['revision']} at {status['promotedAt']}"))
    return found


def _figures(arm: Object) -> str:
    """What the arm's episodes have shown."""
    shown = [
        f"{arm['episodes']} episodes" if arm.get("episodes") else "",
        f"mean return {arm['meanReturn']:g}" if arm.get("meanReturn") is not None else "",
        f"success rate {arm['successRate']:.1%}" if arm.get("successRate") is not None else "",
    ]
    return f"; {', '.join(filter(None, shown))}" if arm.get("episodes") else ""


def _orders(status: Object) -> list[tuple[str, str]]:
    """What a person has ordered, and where undo would lead."""
    hand, last, found = status.get("hand"), status.get("lastStable"), []
    if hand:
        found.append(("by hand", f"{hand['verb']} by {hand.get('by')} since {hand['at']}"))
    if last:
        found.append(("undo", f"would go back to {last['uri']}"))
    return found


def _evidence(status: Object) -> str:
    """One line per test: what it found, what it still needs and until about when."""
    lines = []
    for item in status.get("evidence") or []:
        chances = [
            f"{text} {item[key]:.4f}"
            for key, text in (("chanceWorse", "P(worse)"), ("chanceFine", "P(not worse)"))
            if item.get(key) is not None
        ]
        due = f", about {item['estimatedAt']}" if item.get("estimatedAt") else ""
        more = f"{item['neededEpisodes']} more canary episodes{due}" if item.get("neededEpisodes") else ""
        dry = "dry run" if item.get("dryRun") else ""
        # A ratio can only be breached, which ends the rollout: until then its verdict stays undecided.
        verdict = "no breach" if item.get("compared") and item["verdict"] == "undecided" else item["verdict"]
        said = "; ".join(filter(None, [verdict, *chances, more, dry]))
        lines.append(f"{item['name']}: {item['claim']}: {said}")
    return "\n".join(["evidence", *(f"  {line}" for line in lines)]) if lines else ""


def _experiment(status: Object) -> str:
    """One line per arm: what it was given, what it has shown, and why it is out."""
    found = status.get("experiment")
    if not found:
        return ""
    lines = [f"experiment {found['id']}: {found['phase']}: {found.get('message') or ''}"]
    for arm in found.get("arms") or ():
        shown = "not compared yet"
        if arm.get("mean") is not None:
            shown = f"{arm['mean']:g} [{arm['low']:g}, {arm['high']:g}] over {arm['episodes']} episodes"
        better = f"P(better than stable) {arm['chanceBetter']:.4f}" if arm.get("chanceBetter") is not None else ""
        said = "; ".join(filter(None, [shown, better, arm["standing"], arm.get("message")]))
        lines.append(f"  {arm['name']} {arm['revision']} {arm['weight']} %: {said}")
        for guardrail in arm.get("guardrails") or () if arm["name"] != "stable" else ():
            mean = f" at {guardrail['mean']:g}" if guardrail.get("mean") is not None else ""
            lines.append(f"    guardrail {guardrail['name']}: {guardrail['standing']}{mean}")
    return "\n".join(lines)


def _decisions(status: Object) -> str:
    """Who said what, and what became of it."""
    lines = []
    for item in status.get("decisions") or []:
        who = item.get("by") or "somebody who gave no name"
        claim = "" if item.get("verified") or not item.get("by") else " (as claimed)"
        where = f" at step {item['step']}" if item.get("step") else ""
        what = f"{item['verb']} {item.get('revision') or ''}".rstrip()
        lines.append(f"  {item['at']}  {what}{where} by {who}{claim}: {item['outcome']}: {item['message']}")
    return "\n".join(["decisions", *lines]) if lines else ""
