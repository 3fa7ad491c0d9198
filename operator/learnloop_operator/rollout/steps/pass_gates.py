"""A ready candidate at its gates: no user meets it before every suite has passed, and whoever must agree has agreed."""

from dataclasses import replace

from learnloop_api.kinds.rollouts.gates import GatesStatus, ReleaseGates
from learnloop_operator.core.plan import Notice
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.judging.gate_suites import gates_of, judge_gates
from learnloop_operator.rollout.model.decision_log import noted, who
from learnloop_operator.rollout.model.next_state import NextState, happened
from learnloop_operator.rollout.model.order_annotations import OrderAnnotation, unanswered
from learnloop_operator.rollout.model.rollout_state import ArmState, State
from learnloop_operator.rollout.model.snapshot import Snapshot
from learnloop_operator.rollout.steps.wait_for_time_and_approval import wait

LOOK = 3.0
"""Seconds between looks at running suites: nothing watches Jobs."""


def pass_gates(snapshot: Snapshot, state: State, candidate: ArmState) -> NextState | None:
    """One look at the gates; None: none stand there. A phase Failed in the answer's state says what has failed."""
    gates = gates_of(snapshot, state)
    if gates is None:
        return None
    found = judge_gates(snapshot, state, candidate, gates)
    news = _news(state.gates, found)
    after = replace(state, gates=found)
    if found.phase == "AwaitingApproval":
        word = _word(snapshot, state, candidate.revision)
        if word is None:
            waiting = wait(after, reasons.WAITING_FOR_APPROVAL, _ask(found, snapshot.name), _soon(snapshot), "")
            return replace(waiting, phase="Paused", events=news)
        found = found.model_copy(update={"phase": "Passed", "approved_by": who(snapshot, word)[:1024]})
        said = f"the gates are passed: approved by {found.approved_by}"
        after = noted(snapshot, replace(after, gates=found), word, "obeyed", said)
    if found.phase == "Passed":
        sentence = f"{candidate.revision} has passed its gates: {found.message}"
        events = (*news, *happened(reasons.GATES_PASSED, sentence))
        return NextState(after, "Progressing", reasons.GATES_PASSED, sentence, events, again_after=0.0)
    if found.phase == "Failed":
        sentence = f"the gates are not passed: {found.message}"
        return NextState(after, "RolledBack", reasons.GATE_FAILED, sentence, news)
    sentence = f"no user meets {candidate.revision} before its gates: {found.message}"
    return replace(wait(after, reasons.WAITING_FOR_GATES, sentence, LOOK, ""), events=news)


def untimely_word(snapshot: Snapshot, state: State, gates: ReleaseGates, word: OrderAnnotation) -> str:
    """Why this approval does not open the gates; "" where it does."""
    standing = state.gates.phase if state.gates and state.gates.revision == word.revision else "Running"
    if standing != "AwaitingApproval":
        return "the suites have not all passed: look at status.gates, and approve when they have"
    approval = gates.approval
    if approval is not None and word.by not in approval.by:
        return f"spec.gates.approval.by: only {', '.join(approval.by)} may approve, not {who(snapshot, word)}"
    return ""


def _word(snapshot: Snapshot, state: State, revision: str) -> OrderAnnotation | None:
    """Only what the last look has not refused: the order of the looks sees to that."""
    gates = snapshot.spec.gates
    for word in unanswered(snapshot.annotations, state.decisions):
        if word.verb == "approve" and word.revision == revision and not word.problem and word.step is None:
            return word if gates and not untimely_word(snapshot, state, gates, word) else None
    return None


def _ask(found: GatesStatus, name: str) -> str:
    return f"{found.message}: waiting for `kubectl learnloop approve {name}`"


def _soon(snapshot: Snapshot) -> float:
    return max(LOOK, float(snapshot.spec.analysis.interval_seconds))


def _news(before: GatesStatus | None, after: GatesStatus) -> tuple[Notice, ...]:
    """An event for each verdict that is new."""
    same = before is not None and before.revision == after.revision
    known = {item.id for item in before.suites if item.verdict != "pending"} if before and same else set()
    news: tuple[Notice, ...] = ()
    for item in after.suites:
        if item.verdict == "pending" or item.id in known:
            continue
        failed = item.verdict == "failed"
        name = reasons.GATE_FAILED if failed else reasons.GATE_PASSED
        news += happened(name, f"{item.name} of {after.revision}: {item.message}", warning=failed)
    return news
