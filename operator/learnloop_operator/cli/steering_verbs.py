"""The verbs that write one order about a rollout or an agent: each looks, refuses or writes, and says what follows."""

import re
import sys
import time
from datetime import timedelta
from typing import Annotated
from urllib.parse import urlencode

import typer

from learnloop_api.names import ANNOTATION_TRAIN
from learnloop_common.untrusted_text import one_line
from learnloop_operator.cli.cluster import Cluster
from learnloop_operator.cli.objects import CommandError, NoAnswerError, Object, UsageError, condition, status_of
from learnloop_operator.cli.signed_order import look, signed
from learnloop_operator.core.plan import LONGEST_NOTE
from learnloop_operator.rollout.state.overrides import LONGEST, NONE

_SPAN = re.compile(r"([1-9][0-9]{0,6})([smhd])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

POLL_SECONDS = 5.0
ENDED = ("Validated", "Failed")
Name = Annotated[str, typer.Argument(help="a ModelDeployment")]


def approve(cluster: Cluster, name: Name) -> str:
    """Approve exactly the revision, and the gates or the step, that are shown now."""
    rollout = look(cluster, name)
    if rollout.held:
        raise rollout.refusal(f"is on hold: `kubectl learnloop resume {name}` ends that")
    if rollout.status.get("phase") != "Paused" or not rollout.canary:
        raise rollout.refusal("waits for no approval")
    gates, canary = rollout.status.get("gates") or {}, str(rollout.canary["revision"])
    if gates.get("phase") == "AwaitingApproval" and gates.get("revision") == canary:
        rollout.order("approve", canary)
        return f"approved {canary} at its gates"
    rollout.order("approve", rollout.at_step())
    return f"approved {canary} at {rollout.where}"


def reject(cluster: Cluster, name: Name) -> str:
    """Obeyed by a suspended rollout, too."""
    rollout = look(cluster, name, to_roll_back=True)
    if rollout.status.get("phase") != "Paused" or not rollout.canary:
        abort_it = f"`kubectl learnloop abort {name}`"
        raise rollout.refusal(f"waits for no approval; {abort_it} rolls back a canary at any time")
    rollout.order("reject", rollout.at_step())
    return f"rejected {rollout.canary['revision']} at {rollout.where}: it is rolled back and blocked"


def pause(cluster: Cluster, name: Name) -> str:
    rollout = look(cluster, name)
    revision, held = rollout.trial()["revision"], rollout.held
    if held and held["verb"] == "pause":
        return f"{revision} is on hold since {held['at']} already, by {held.get('by')}"
    rollout.order("pause", revision)
    end = f"`kubectl learnloop resume {name}`"
    return f"{revision} holds at {rollout.where}; a breach still rolls it back; {end} ends it"


def resume(cluster: Cluster, name: Name) -> str:
    rollout = look(cluster, name)
    revision = rollout.trial()["revision"]
    if not rollout.held or rollout.held["verb"] != "pause":
        raise rollout.refusal(
            f"is not on hold; `kubectl learnloop approve {name}` passes a step that waits for approval"
        )
    rollout.order("resume", revision)
    return f"{revision} continues at {rollout.where}"


def skip(cluster: Cluster, name: Name) -> str:
    """Pass exactly the step that is shown now; refused by the operator while a check is breached."""
    rollout = look(cluster, name)
    outcome = f"`kubectl learnloop why {name}` shows the outcome"
    if waiting := rollout.waiting():
        rollout.order("skip", waiting)
        return f"asked to begin {waiting} now; {outcome}"
    if rollout.status.get("step") is None:
        rollout.trial()
        raise rollout.refusal("is at no step yet")
    rollout.order("skip", rollout.at_step())
    return f"asked to skip {rollout.where}; {outcome}"


def restart(cluster: Cluster, name: Name) -> str:
    rollout = look(cluster, name)
    revision = rollout.trial()["revision"]
    rollout.order("restart", revision)
    return f"{revision} starts over at the first step"


def retry(
    cluster: Cluster,
    name: Name,
    revision: Annotated[str | None, typer.Option(help="left out, the one that blocks the wished model")] = None,
    every: Annotated[bool, typer.Option("--all", help="all that are blocked")] = False,
) -> str:
    if every and revision:
        raise UsageError("--all and --revision: give one of them")
    rollout = look(cluster, name)
    first = rollout.status.get("blockedRevision")
    if not first:
        raise rollout.refusal("has no blocked revision: there is nothing to retry")
    blocked = rollout.status.get("blockedRevisions") or [first]
    revisions = ", ".join(block["revision"] for block in blocked)
    if every:
        rollout.order("retry", "all")
        return f"{revisions} may try again"
    block = next((block for block in blocked if block["revision"] == revision), None) if revision else first
    if block is None:
        raise rollout.refusal(f"has not blocked --revision {revision!r}: it has {revisions}")
    rollout.order("retry", block["revision"])
    return f"{block['revision']} may try again; it was rolled back because: {block['message']}"


def abort(
    cluster: Cluster,
    name: Name,
    arm: Annotated[str | None, typer.Option(help="one arm of an experiment; the others continue")] = None,
) -> str:
    """Obeyed by a suspended rollout, too."""
    rollout = look(cluster, name, to_roll_back=True)
    if arm:
        revision = rollout.challenger(arm)
        rollout.order("abort", revision)
        return f"taking {arm} out of the experiment; the others continue"
    target = rollout.canary or (rollout.status.get("stable") if rollout.status.get("previous") else None)
    if not target:
        undo_it = f"`kubectl learnloop undo {name}`"
        raise rollout.refusal(f"has neither a canary nor a warm old arm: {undo_it} rolls back a promoted model")
    rollout.order("abort", target["revision"])
    return f"rolling back {target['revision']}; `kubectl learnloop why {name}` says when it is done"


def undo(cluster: Cluster, name: Name) -> str:
    """Roll back to the warm old arm, else to the last stable model on record."""
    rollout = look(cluster, name)
    if rollout.canary:
        raise rollout.refusal(f"has a canary: `kubectl learnloop abort {name}` rolls that back")
    stable, previous = rollout.status.get("stable"), rollout.status.get("previous")
    to = previous or rollout.status.get("lastStable")
    if not stable or not to:
        raise rollout.refusal("has no earlier model on record: set spec.model to the one to serve")
    rollout.order("undo", stable["revision"])
    if previous:
        return f"{stable['revision']} goes; {previous['revision']} is warm and serves again immediately"
    return f"{stable['revision']} is removed as soon as the pods of {to['uri']} can serve"


def promote(
    cluster: Cluster,
    name: Name,
    revision: Annotated[str | None, typer.Option(help="the arm to promote; left out, the canary or the winner")] = None,
) -> str:
    """Promote to 100 % by hand; refused by the operator while a check is breached.

    Of a model that waits for the end of a guard it ends the guard, for it has no canary yet.
    """
    rollout = look(cluster, name)
    stable = (rollout.status.get("stable") or {}).get("revision")
    if revision and revision == stable and not rollout.canary:
        return f"{stable} is stable already"
    outcome = f"`kubectl learnloop why {name}` shows the outcome"
    waiting = rollout.waiting()
    if waiting and revision in (None, waiting):
        rollout.order("promote", waiting)
        return f"asked to begin {waiting} now, as a canary; {outcome}"
    candidate = (None if rollout.canary else rollout.winner()) or rollout.trial()["revision"]
    if revision not in (None, candidate):
        raise CommandError(f"--revision {revision!r} is not the one to promote in {name!r}: that is {candidate}")
    if rollout.held and rollout.held["verb"] == "pause":
        raise rollout.refusal("is on hold: `kubectl learnloop resume` first")
    rollout.order("promote", candidate)
    return f"asked to promote {candidate}; {outcome}"


def override(
    cluster: Cluster,
    name: Annotated[str, typer.Argument(help="a ModelDeployment")],
    action: Annotated[int | None, typer.Option(metavar="N", help="always this one of several actions")] = None,
    numbers: Annotated[str | None, typer.Option(metavar="A,B", help="always this action made of numbers")] = None,
    answer: Annotated[str | None, typer.Option(metavar="TEXT", help="always this text, of a language model")] = None,
    fallback: Annotated[bool, typer.Option("--fallback", help="the agent's own fallback, or the gateway's")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="no answer at all")] = False,
    end: Annotated[bool, typer.Option("--end", help="the policy decides again")] = False,
    agent: Annotated[str | None, typer.Option(help="a LearningAgent; left out, all agents")] = None,
    span: Annotated[str, typer.Option("--for", metavar="TIME", help="a number and s, m, h or d, at most 7d")] = "1h",
    reason: Annotated[str, typer.Option(help="everyone can read it")] = "",
) -> str:
    """Sign the order; it ends by itself."""
    given = [action is not None, numbers is not None, answer is not None, fallback, stop, end]
    if sum(given) != 1:
        raise UsageError("give exactly one of --action, --numbers, --answer, --fallback, --stop and --end")
    rollout = look(cluster, name, to_roll_back=True)
    target, readers = {"agent": agent} if agent else {}, agent or "every agent"
    if end:
        rollout.order("override", urlencode({"instead": NONE} | target))
        return f"{readers} gets the policy's answers again"
    if not reason.strip():
        raise CommandError("--reason: missing; say why, e.g. --reason 'prices are wrong'")
    fixed = {"choice": action if action is None else str(action), "numbers": numbers, "answer": answer}
    instead, label = ("stop", "no answer") if stop else ("fallback", "the fallback")
    if not stop and not fallback:
        instead, label = "fixed", "the fixed answer"
    order = {"instead": instead} | {key: value for key, value in fixed.items() if value is not None}
    why = {"for": str(int(_span(span).total_seconds())), "reason": reason.strip()}
    what = urlencode(order | target | why, safe=":,")
    if len(signed(cluster, what)) >= LONGEST_NOTE:
        raise CommandError("--reason and --answer are too long for one annotation: make one of them shorter")
    rollout.order("override", what)
    return f"{readers} gets {label} for {span}; `kubectl learnloop override {name} --end` ends it sooner"


def _span(text: str) -> timedelta:
    match = _SPAN.fullmatch(text)
    span = timedelta(**{_UNITS[match[2]]: int(match[1])}) if match else timedelta()
    if not timedelta() < span <= LONGEST:
        raise CommandError(f"--for {text!r}: give a number and s, m, h or d, at most 7d")
    return span


def train(
    cluster: Cluster,
    name: Annotated[str, typer.Argument(help="a LearningAgent")],
    wait: Annotated[bool, typer.Option("--wait", help="until the run has ended")] = False,
    timeout: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="for --wait")] = 3600.0,
) -> str:
    """Request a run; with --wait print each new phase, and the verdict.

    Raises:
        CommandError: the agent cannot train; with --wait: the run failed, was refused, or has not ended in time.
    """
    agent = cluster.get("learningagents", name)
    spec, status = agent["spec"], status_of(agent)
    if not spec.get("training"):
        raise CommandError(f"spec.training of LearningAgent {name!r} is missing: it says how to train; set it")
    if spec.get("suspend"):
        raise CommandError(f"spec.suspend of LearningAgent {name!r} is true: set it to false first")
    cluster.annotate("learningagents", name, {ANNOTATION_TRAIN: signed(cluster, "now")})
    last, run, update = status.get("lastTraining"), f"{name}-{int(status.get('trainings') or 0) + 1}", None
    warm = cluster.find("trainingjobs", last["name"]) if last else None
    if warm and warm["spec"].get("continuous") and not status_of(warm).get("finishedAt"):
        run, update = warm["metadata"]["name"], int(warm["spec"]["continuous"].get("update") or 0) + 1
    if wait:
        return verdict(cluster, name, run, timeout, update)
    if update is not None:
        return f"requested update {update} of {run}"
    if last and last.get("phase") not in ENDED:
        return f"{last['name']} is running; the next run follows when it has ended"
    return f"requested {run}"


def verdict(cluster: Cluster, agent: str, run: str, timeout: float, update: int | None = None) -> str:
    """Wait for the end of a run that has yet to begin, or of an `update` of one whose rank stays; an API server that is
    away is asked again."""
    until, printed, begun = time.monotonic() + timeout, "", False
    while True:
        try:
            job = cluster.find("trainingjobs", run)
            sentence = _progress(job, run) if job else ""
            if not job and begun:
                raise CommandError(f"TrainingJob {run} was deleted before it had ended")
            if not job:
                waits = condition(cluster.get("learningagents", agent), "Ready").get("message", "")
                sentence = f"{agent} has not begun a run: {waits}"
            begun = begun or job is not None
        except NoAnswerError as error:
            job, sentence = None, str(error)
        if job and _ended(status_of(job), update):
            if status_of(job)["phase"] == "Validated":
                return sentence
            raise CommandError(sentence)
        if sentence != printed:
            printed = sentence
            print(one_line(sentence), file=sys.stderr, flush=True)
        if time.monotonic() >= until:
            raise CommandError(f"{run} has not ended in {timeout:g} s; give --timeout more seconds, or look at it")
        time.sleep(min(POLL_SECONDS, max(0.0, until - time.monotonic())))


def _ended(state: Object, update: int | None) -> bool:
    judged = int(state.get("update") or 0) >= (update or 0) and state.get("phase") in (*ENDED, "Waiting")
    return judged and bool(state.get("finishedAt") or state.get("update") is not None)


def _progress(job: Object, run: str) -> str:
    phase = str(status_of(job).get("phase") or "Pending")
    return f"{run} {phase}" + (
        f": {condition(job, 'Ready').get('message', '')}" if phase in (*ENDED, "Waiting") else ""
    )
