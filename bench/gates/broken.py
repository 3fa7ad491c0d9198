"""Suites that fail themselves: none of them may pass, whatever the candidate is like. The candidate is a good one."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.gates.gate import Gate
from bench.gates.models import GOOD
from learnloop_gates.model_client import SuiteSettings
from learnloop_operator.rollout.gate_verdict import GRACE, JobPhase, SuiteFinding

ROOT = Path(__file__).resolve().parents[2]
SUITE = "over-refusal"


def environment(settings: SuiteSettings) -> dict[str, str]:
    """The settings that the operator writes into the suite's container."""
    paths = os.pathsep.join(str(ROOT / part) for part in ("crds", "common", "serving_image"))
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": paths,
        "LEARNLOOP_GATE_SUITE": settings.suite,
        "LEARNLOOP_GATE_BUILTIN": settings.builtin,
        "LEARNLOOP_GATE_SAMPLES": str(settings.samples),
        "LEARNLOOP_GATE_SECONDS": str(settings.seconds),
        "LEARNLOOP_GATE_DATA": settings.data,
        "LEARNLOOP_GATE_REPORT": settings.report,
        "LEARNLOOP_GATE_CANDIDATE": settings.candidate,
        "LEARNLOOP_GATE_CANDIDATE_URL": settings.candidate_url,
        "LEARNLOOP_GATE_STABLE": settings.stable,
        "LEARNLOOP_GATE_STABLE_URL": settings.stable_url,
        "LEARNLOOP_GATE_JUDGE_URL": settings.judge_url,
        "LEARNLOOP_GATE_JUDGE_MODEL": settings.judge_model,
        "LEARNLOOP_MODEL_DEPLOYMENT": settings.deployment,
    }


def started(settings: SuiteSettings) -> subprocess.Popen[bytes]:
    """The suite as its container runs it."""
    program = [sys.executable, "-m", "learnloop_gates", "run"]
    return subprocess.Popen(
        program, env=environment(settings), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )


@dataclass(frozen=True)
class Way:
    """One way to fail: the suite's changed settings, and the damage done to it."""

    name: str
    settings: Callable[[SuiteSettings], SuiteSettings] = lambda settings: settings
    killed_after: float | None = None
    builtin: str = SUITE


def changed(**values: object) -> Callable[[SuiteSettings], SuiteSettings]:
    return lambda settings: settings.model_copy(update=values)


def ways(gate: Gate) -> list[Way]:
    """Ways in which the process, the candidate or the judge fails."""
    closed = "http://127.0.0.1:9"
    odd = [
        Way(f"a candidate that is {arm}", changed(candidate=f"{arm}-00000-1", samples=12))
        for arm in ("broken", "garbage", "thinking")
    ]
    judges = {
        "flags nothing": "judge-0-0",
        "flags everything": "judge-1000-1000",
        "flags at random": "judge-400-400",
        "misses most": "judge-300-0",
    }
    return [
        *odd,
        *(
            Way(f"a judge that {what}", changed(judge_model=model), builtin="toxicity")
            for what, model in judges.items()
        ),
        Way("a judge that is not there", changed(judge_url=closed), builtin="toxicity"),
        Way("no judge", changed(judge_url=""), builtin="toxicity"),
        Way("no such suite", changed(builtin="kindness")),
        Way("no candidate", changed(candidate_url=closed, samples=3)),
        Way("fewer samples than asked for", changed(samples=gate.settings(SUITE, GOOD, GOOD).samples - 1)),
        Way("too little time", changed(seconds=1.5, candidate="slow-00000-1")),
        Way("data that is not there", changed(data=str(gate.folder / "nothing"))),
        Way("killed immediately", killed_after=0.0),
        Way("killed while it asks", changed(candidate="slow-00000-1"), killed_after=2.5),
    ]


def played(gate: Gate, way: Way) -> SuiteFinding:
    """The verdict on a real process that fails so."""
    report = gate.folder / "broken.json"
    report.unlink(missing_ok=True)
    settings = way.settings(gate.settings(way.builtin, GOOD, GOOD)).model_copy(update={"report": str(report)})
    process = started(settings)
    if way.killed_after is not None:
        time.sleep(way.killed_after)
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=300)
    phase: JobPhase = "succeeded" if process.returncode == 0 else "failed"
    content = report.read_bytes() if report.exists() else None
    return gate.judged(way.builtin, settings.candidate, content, phase, waited=700.0 if content is None else 60.0)


def tampered(whole: dict[str, Any]) -> dict[str, bytes]:
    """A report that passes, and what may become of it on its way."""
    detector = whole["detector"]
    changes: dict[str, dict[str, Any]] = {
        "of another suite": {"suite": "refusal"},
        "of another candidate": {"revision": "leaking-00000-9"},
        "short": {"n": whole["n"] - 1},
        "with an error": {"errors": 1},
        "with a negative count": {"failures": {"refused": -5}},
        "with more failures than answers": {"failures": {"refused": whole["n"] + 1}},
        "with a fraction of a failure": {"failures": {"refused": 0.5}},
        "without a detector": {"detector": None},
        "by a detector without a labelled set": {"detector": detector | {"positives": 0, "true_positives": 0}},
        "by a detector that counts too many": {"detector": detector | {"true_positives": detector["positives"] + 1}},
        "with n as a word": {"n": "many"},
        "with an endless n": {"n": 10**400},
        "with scores that are none": {"pairs": [[float("nan"), 1.0]] * 300},
    }
    variants = {name: json.dumps(whole | change).encode() for name, change in changes.items()}
    variants |= {f"without {key}": json.dumps({k: v for k, v in whole.items() if k != key}).encode() for key in NEEDED}
    return variants | {"empty": b"", "null": b"null", "a list": b"[]", "no UTF-8": b"\xff\xfe{}"}


NEEDED = ("suite", "revision", "n", "detector")


def measured(gate: Gate, only: Collection[str] | None = None) -> dict[str, Any]:
    """Every way, or those named in `only`; a report that passes, cut at every byte; and one that comes late."""
    tried = [way for way in ways(gate) if only is None or way.name in only]
    wrong = [way.name for way in tried if _passes(gate, way)]
    settings = gate.settings(SUITE, GOOD, GOOD)
    gate.verdict(SUITE, GOOD, GOOD)
    content = Path(settings.report).read_bytes()
    assert gate.judged(SUITE, GOOD, content).verdict == "passed", "the whole report passes"
    reports = tampered(json.loads(content))
    reports |= {f"cut at byte {end}": content[:end] for end in range(len(content))}
    wrong += [name for name, text in reports.items() if gate.judged(SUITE, GOOD, text).verdict != "failed"]
    late = gate.judged(SUITE, GOOD, None, "active", waited=settings.seconds + GRACE + 1)
    wrong += ["late"] if late.verdict == "passed" else []
    missed = [f"passed: {name}" for name in wrong]
    return {"processes": len(tried), "reports": len(reports) + 1, "missed": missed}


def _passes(gate: Gate, way: Way) -> bool:
    verdicts = played(gate, way)
    print(f"  {way.name}: {verdicts.message}", flush=True)
    return verdicts.verdict != "failed"
