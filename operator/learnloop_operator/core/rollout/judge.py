"""All checks of the analysis at once."""

from dataclasses import dataclass

from learnloop_operator.core.rollout.evidence import Check, Verdict, check
from learnloop_operator.core.rollout.world import Snapshot


@dataclass(frozen=True, slots=True)
class Judgement:
    """`breach` speaks first; `hold` is the first check without enough data; neither: everything passed."""

    breach: str = ""
    hold: str = ""
    passed: str = ""


def judge(snapshot: Snapshot, subject: str, reference: str, subject_is: str, reference_is: str) -> Judgement:
    """Weigh the arm `subject` against `reference` by every check of spec.analysis."""
    evidence = snapshot.evidence
    if evidence.unavailable:
        return Judgement(hold=f"no evidence: {evidence.unavailable}")
    checks: list[Check] = [
        check(
            metric,
            evidence.arms.get(subject),
            evidence.arms.get(reference),
            subject_is=subject_is,
            reference_is=reference_is,
        )
        for metric in snapshot.spec.analysis.metrics
    ]
    return Judgement(
        breach="; ".join(item.sentence for item in checks if item.verdict is Verdict.BREACH),
        hold="; ".join(item.sentence for item in checks if item.verdict is Verdict.HOLD),
        passed="; ".join(item.sentence for item in checks if item.verdict is Verdict.PASS),
    )


def episodes(snapshot: Snapshot, revision: str) -> int:
    """Finished episodes of the arm in its window; 0 where nothing is known."""
    arm = snapshot.evidence.arms.get(revision)
    return arm.episodes if arm else 0
