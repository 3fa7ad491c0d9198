"""The gates of a candidate: no user meets it before every suite has passed and the approvers have agreed."""

from dataclasses import asdict, replace

from learnloop_api.kinds.base import PodOptions, seconds_of
from learnloop_api.kinds.rollouts.gates import GatesStatus, GateSuite, GateSuiteStatus, ReleaseGates
from learnloop_operator.core import allowed_pods, plan, times
from learnloop_operator.rollout import gate_verdict, reasons
from learnloop_operator.rollout.state.orders import OrderAnnotation, noted, unanswered, who
from learnloop_operator.rollout.state.rollout_state import ArmState, NextState, State, happened, wait
from learnloop_operator.rollout.state.snapshot import Snapshot


def gates_of(snapshot: Snapshot, state: State) -> ReleaseGates | None:
    """The gates that a candidate has to pass; None where there are none, and for a model that has served before."""
    back = state.standing_order is not None and state.standing_order.verb == "undo"
    return None if back else snapshot.spec.gates


def closed(snapshot: Snapshot, state: State, revision: str) -> bool:
    """Whether gates stand between this candidate and its first episode."""
    passed = state.gates is not None and state.gates.revision == revision and state.gates.phase == "Passed"
    return gates_of(snapshot, state) is not None and not passed


def canary_waits(snapshot: Snapshot, state: State) -> bool:
    """Whether the canary is ready, has no episodes, and is judged by its gates."""
    if state.canary is None or state.weight or state.step != 0:
        return False
    return closed(snapshot, state, state.canary.revision)


def first_at_gates(snapshot: Snapshot, state: State) -> bool:
    """Whether the first model of all is judged by its gates, and nothing serves."""
    result, model = state.gates, snapshot.desired.model
    if state.stable is not None or model is None or result is None or result.revision != model.revision:
        return False
    return result.phase in ("Running", "AwaitingApproval") and closed(snapshot, state, model.revision)


def judge_gates(snapshot: Snapshot, state: State, candidate: ArmState, gates: ReleaseGates) -> GatesStatus:
    """Judges all suites. A verdict is final; a suite that changes in the spec runs again."""
    before = state.gates if state.gates and state.gates.revision == candidate.revision else None
    started = before.started_at if before else times.stamp(snapshot.now)
    recorded = {item.id: item for item in before.suites} if before else {}
    baseline = state.stable is not None
    suites = [_judged(snapshot, candidate, suite, recorded, started, baseline) for suite in gates.suites]
    pending = [item for item in suites if item.verdict == "pending"]
    failed = [item for item in suites if item.verdict == "failed"]
    ended = None if pending else (before.judged_at if before and before.judged_at else times.stamp(snapshot.now))
    result = GatesStatus(
        revision=candidate.revision,
        phase="Running",
        started_at=started,
        judged_at=ended,
        approved_by=before.approved_by if before else None,
        suites=suites,
        message=suites_sentence(suites)[:1024],
    )
    if pending:
        return result
    if failed:
        return result.model_copy(update={"phase": "Failed"})
    if gates.approval is None or result.approved_by:
        return result.model_copy(update={"phase": "Passed"})
    approval, waited = gates.approval, times.seconds_since(ended, snapshot.now)
    if waited > seconds_of(approval.within):
        why = f"none of {', '.join(approval.by)} approved within {approval.within}"
        return result.model_copy(update={"phase": "Failed", "message": f"{why}; {result.message}"[:1024]})
    left = times.duration(seconds_of(approval.within) - waited)
    text = f"{result.message}; waiting {left} more for the approval of {' or '.join(approval.by)}"
    return result.model_copy(update={"phase": "AwaitingApproval", "message": text[:1024]})


def suites_sentence(suites: list[GateSuiteStatus]) -> str:
    """All suites in one sentence: what fails first, then what runs."""
    order = {"failed": 0, "pending": 1, "passed": 2}
    words = {"failed": "", "pending": "runs: ", "passed": "passed: "}
    parts = [
        f"{item.name} {words[item.verdict]}{item.message}" for item in sorted(suites, key=lambda x: order[x.verdict])
    ]
    return "; ".join(parts) or "no suites"


def _judged(
    snapshot: Snapshot,
    candidate: ArmState,
    suite: GateSuite,
    recorded: dict[str, GateSuiteStatus],
    started: str,
    baseline: bool,
) -> GateSuiteStatus:
    identity = plan.revision(suite.to_kube())
    old = recorded.get(identity)
    if old and old.verdict != "pending":
        return old
    since = old.at if old and old.at else times.stamp(snapshot.now)
    job = old.job if old else job_name(snapshot.name, candidate.revision, suite.name, identity, started)
    stray = suite_stray(snapshot, suite)
    run = gate_verdict.SuiteRun(message=stray) if stray else snapshot.suite_runs.get(job, gate_verdict.SuiteRun())
    result = gate_verdict.judge_suite(
        suite,
        run,
        candidate.revision,
        waited=times.seconds_since(since, snapshot.now),
        baseline=baseline,
        seconds=seconds_of(suite.timeout),
        now=snapshot.now,
    )
    if snapshot.reports_problem:
        result = gate_verdict.SuiteFinding("pending", snapshot.reports_problem)
    return GateSuiteStatus(
        name=suite.name,
        id=identity,
        job=job,
        at=since if result.verdict == "pending" else times.stamp(snapshot.now),
        **asdict(replace(result, message=result.message[:1024])),
    )


def suite_stray(snapshot: Snapshot, suite: GateSuite) -> str:
    """The part of the suite's container that the platform forbids; "" when it allows all. Its Job is not made."""
    options = PodOptions(image=suite.image, env=suite.env)
    return allowed_pods.forbidden(options, f"spec.gates.suites[{suite.name}]", snapshot.defaults.pods)


def job_name(deployment: str, revision: str, suite: str, identity: str, started: str) -> str:
    """Name of a suite's Job: another one for each candidate, suite and beginning, so that no old report counts."""
    return f"{deployment[:40]}-gate-{plan.revision([deployment, revision, suite, identity, started], 12)}"


# A ready candidate at its gates: no user meets it before every suite has passed, and the approvers have agreed.


LOOK = 3.0
"""Seconds between looks at running suites: nothing watches Jobs."""


def pass_gates(snapshot: Snapshot, state: State, candidate: ArmState) -> NextState | None:
    """One look at the gates; None: none stand there. A phase Failed in the answer's state says what has failed."""
    gates = gates_of(snapshot, state)
    if gates is None:
        return None
    result = judge_gates(snapshot, state, candidate, gates)
    news = _news(state.gates, result)
    after = replace(state, gates=result)
    if result.phase == "AwaitingApproval":
        order = _approval(snapshot, state, candidate.revision)
        if order is None:
            waiting = wait(after, reasons.WAITING_FOR_APPROVAL, _ask(result, snapshot.name), _soon(snapshot))
            return replace(waiting, phase="Paused", events=news)
        result = result.model_copy(update={"phase": "Passed", "approved_by": who(snapshot, order)[:1024]})
        text = f"the gates are passed: approved by {result.approved_by}"
        after = noted(snapshot, replace(after, gates=result), order, "obeyed", text)
    if result.phase == "Passed":
        sentence = f"{candidate.revision} has passed its gates: {result.message}"
        events = (*news, *happened(reasons.GATES_PASSED, sentence))
        return NextState(after, "Progressing", reasons.GATES_PASSED, sentence, events, again_after=0.0)
    if result.phase == "Failed":
        sentence = f"the gates are not passed: {result.message}"
        return NextState(after, "RolledBack", reasons.GATE_FAILED, sentence, news)
    sentence = f"no user meets {candidate.revision} before its gates: {result.message}"
    return replace(wait(after, reasons.WAITING_FOR_GATES, sentence, LOOK), events=news)


def untimely_order(snapshot: Snapshot, state: State, gates: ReleaseGates, order: OrderAnnotation) -> str:
    """Why this approval does not open the gates; "" where it does."""
    standing = state.gates.phase if state.gates and state.gates.revision == order.revision else "Running"
    if standing != "AwaitingApproval":
        return "the suites have not all passed: look at status.gates, and approve when they have"
    approval = gates.approval
    if approval is not None and order.by not in approval.by:
        return f"spec.gates.approval.by: only {', '.join(approval.by)} may approve, not {who(snapshot, order)}"
    return ""


def _approval(snapshot: Snapshot, state: State, revision: str) -> OrderAnnotation | None:
    """Only what the last look has not refused: the order of the looks sees to that."""
    gates = snapshot.spec.gates
    for order in unanswered(snapshot.annotations, state.decisions):
        if order.verb == "approve" and order.revision == revision and not order.problem and order.step is None:
            return order if gates and not untimely_order(snapshot, state, gates, order) else None
    return None


def _ask(gates: GatesStatus, name: str) -> str:
    return f"{gates.message}: waiting for `kubectl learnloop approve {name}`"


def _soon(snapshot: Snapshot) -> float:
    return max(LOOK, float(snapshot.spec.analysis.interval_seconds))


def _news(before: GatesStatus | None, after: GatesStatus) -> tuple[plan.Notice, ...]:
    """An event for each verdict that is new."""
    same = before is not None and before.revision == after.revision
    recorded = {item.id for item in before.suites if item.verdict != "pending"} if before and same else set()
    news: tuple[plan.Notice, ...] = ()
    for item in after.suites:
        if item.verdict == "pending" or item.id in recorded:
            continue
        failed = item.verdict == "failed"
        name = reasons.GATE_FAILED if failed else reasons.GATE_PASSED
        news += happened(name, f"{item.name} of {after.revision}: {item.message}", warning=failed)
    return news
