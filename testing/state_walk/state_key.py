"""When two nodes of a state graph count as one: what a decision depends on, and no more of it than it asks.

Every number is reduced to its side of the limits that a decision compares it with. What is counted has one
place in between, which is all there is in this rig: two looks that see few episodes make enough of nothing
(`graph_world.FEW`). Evidence of a test, which grows slowly, has a few more; a state whose place hides its progress is
led on by `walk`. What a status only says (phase, conditions, figures of arms) no decision reads.
"""

import math
from datetime import datetime

from learnloop_api.kinds.model_deployment import BlockedRevision
from learnloop_operator.rollout.decide_deployment import DRAIN_SECONDS
from learnloop_operator.rollout.judging.watched_arms import SHORTEST
from testing.state_walk.rollout_graph import (
    ALPHA,
    DEADLINE,
    KEEP_SECONDS,
    LEAST_RATIO,
    MIN_EPISODES,
    Node,
    compared,
    log_evidence,
    of_success,
    on_trial,
    revision_of,
    routing_of,
    step_of,
)

Key = tuple[object, ...]
BROKEN = math.log(6.0 / ALPHA)
"""Log e-value at which a ratio is broken: two bounds, each asked three times, share alpha."""
WORSE, FINE = math.log(2.0 / ALPHA), math.log(1.0 / ALPHA)
"""Log e-values at which a test has proven a canary worse, and fine: two claims may roll it back, and share alpha."""
FINE_PLACES = (-FINE, 0.0, FINE / 2.0, FINE)


def state_key(node: Node) -> Key:
    """Revisions, table and pods as they are: what is left over is deleted. A rollback that the table tells of and the
    status does not is finished first, whatever else is seen, and its arm drains since then. Everywhere else:

    - step and weight, as they are;
    - whether the canary's pods were ready, or how long they were not: it is given up after the deadline;
    - ages: of the rollout against its shortest window and, before the first step, against the deadline; of a promotion
      against its guard; of a rollback against the time to drain;
    - what was counted and compared, while an arm is on trial.
    """
    status, block = node.status, unfinished(node)
    if block is not None:
        return (*standing(node), age_of(node, block.at) >= DRAIN_SECONDS)
    age, step = age_of(node, status.get("rolloutStartedAt")), step_of(status)
    return (
        *standing(node),
        step,
        status.get("weight"),
        _readiness(node),
        (age >= SHORTEST) + (age >= DEADLINE and step < 0),
        age_of(node, status.get("promotedAt")) >= KEEP_SECONDS,
        age_of(node, (status.get("blockedRevision") or {}).get("at")) >= DRAIN_SECONDS,
        (_counted(node), _evidence(node)) if status.get("canary") or status.get("previous") else (),
    )


def standing(node: Node) -> Key:
    """The arms that are stable, on trial, kept and blocked; the table; the pods."""
    table = routing_of(node).table
    return (
        tuple(revision_of(node, role) for role in ("stable", "canary", "previous", "blockedRevision")),
        tuple(sorted(block["revision"] for block in node.status.get("blockedRevisions") or ())),
        tuple((arm.revision, arm.weight) for arm in table.arms) if table else (),
        tuple(sorted(node.deployments)),
    )


def age_of(node: Node, since: str | None) -> float:
    """Seconds; 0 for a missing time."""
    return (node.now - datetime.fromisoformat(since)).total_seconds() if since else 0.0


def of_needed(episodes: float) -> int:
    """Fewer than none (counters restarted), none, some, or as many as are needed."""
    return -1 if episodes < 0.0 else (episodes > 0.0) + (episodes >= MIN_EPISODES)


def unfinished(node: Node) -> BlockedRevision | None:
    """The verdict on an arm on trial that the table carries since this rollout began, and the status lacks."""
    block, began = routing_of(node).blocked, node.status.get("rolloutStartedAt")
    if block is None or began is None or block.to_kube() == node.status.get("blockedRevision"):
        return None
    of_now = datetime.fromisoformat(block.at) >= datetime.fromisoformat(began)
    return block if of_now and block.revision == on_trial(node)[0] else None


def _readiness(node: Node) -> int:
    canary = node.status.get("canary") or {}
    return 2 if canary.get("readyReplicas") else int(age_of(node, canary.get("since")) >= DEADLINE)


def _counted(node: Node) -> Key:
    """Episodes of the canary: of the whole rollout, and since the step's base where there is one and no one has ordered
    that steps be passed without. Whether stable has any: of what it plays between two looks it has always enough."""
    n, base = node.counters[0], None if _led(node) else node.status.get("stepBaseEpisodes")
    return of_needed(n), None if base is None else of_needed(n - base), node.counters[2] > 0.0


def _led(node: Node) -> bool:
    """Whether people lead the canary to 100 %, or back there: no step waits for its evidence any more."""
    return (node.status.get("standingOrder") or {}).get("verb") in ("promote", "undo")


def _evidence(node: Node) -> Key:
    """The status of the check of success; () where it is empty yet."""
    metric, logs = of_success(node.status), log_evidence(node.status)
    counted, n = metric.get("counted"), node.counters[0]
    onward = None if counted is None else counted[0] <= n
    if not logs:
        return ()
    if "chanceFine" in metric:
        return onward, metric["judged"][0] > 0.0, _places(logs[0], (0.0, WORSE)), _places(logs[1], FINE_PLACES)
    together, ratio = compared(node.status)
    return onward, of_needed(together), together > 0.0 and ratio < LEAST_RATIO, _places(logs[0], (0.0, BROKEN))


def _places(value: float, limits: tuple[float, ...]) -> int:
    return sum(value >= limit for limit in limits)
