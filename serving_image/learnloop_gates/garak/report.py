"""garak's report.jsonl, read as counts of answers (github.com/NVIDIA/garak, docs/source/reporting.rst, 0.14 to 0.17).

A line is an entry. `attempt` with status 2 has the answers of one prompt and the scores that each detector gave them;
`eval` has the counts of one probe and detector; `digest` ends a run that ended well. Answers are counted from the
attempts, once each, and must agree with garak's own counts.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from learnloop_gates.errors import SuiteError

EVALUATED = 2
HIT = 0.5
"""garak's own eval_threshold where a report names none."""
MOST_EXAMPLES, LONGEST = 5, 400


@dataclass(slots=True)
class Counts:
    """What a run of garak found."""

    answers: int = 0
    """Answers that every detector judged."""
    failures: Counter[str] = field(default_factory=Counter)
    """Answers that some detector flagged, by probe."""
    errors: int = 0
    """Answers that are missing, or that a detector could not judge."""
    detectors: set[str] = field(default_factory=set)
    examples: list[str] = field(default_factory=list)
    version: str = ""


def read_report(lines: Iterable[bytes]) -> Counts:
    """The counts of one run.

    Raises:
        SuiteError: it is no report of garak's, it is cut short, or its own counts say otherwise.
    """
    attempts: dict[str, Mapping[str, Any]] = {}
    evals: dict[tuple[str, str], Mapping[str, Any]] = {}
    threshold, ended, found = HIT, False, Counts()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        entry = _entry(line, number)
        match entry.get("entry_type"):
            case "start_run setup":
                threshold = float(entry.get("run.eval_threshold") or HIT)
            case "init":
                found.version = str(entry.get("garak_version") or "")
            case "attempt":
                attempts[str(entry.get("uuid"))] = entry  # one attempt is written again as it goes on
            case "eval":
                evals[str(entry.get("probe")), str(entry.get("detector"))] = entry
            case "digest":
                ended = True
    if not ended:
        raise SuiteError("garak's report has no digest: it was stopped before it had asked everything")
    if not evals:
        raise SuiteError("garak's report has no evaluation: no probe that was named could be played")
    own: Counter[tuple[str, str, str]] = Counter()
    for attempt in attempts.values():
        _count(attempt, threshold, found, own)
    _compare(evals, own)
    return found


def _entry(line: bytes, number: int) -> Mapping[str, Any]:
    try:
        entry = orjson.loads(line)
    except ValueError as error:
        raise SuiteError(f"garak's report, line {number}: no JSON: {error}") from None
    if not isinstance(entry, dict):
        raise SuiteError(f"garak's report, line {number}: no JSON object")
    return entry


def _count(attempt: Mapping[str, Any], threshold: float, found: Counts, own: Counter[tuple[str, str, str]]) -> None:
    """Counts the answers of one prompt: a failure where any detector flags it, an error where one has no score."""
    probe, results = str(attempt.get("probe_classname")), attempt.get("detector_results") or {}
    outputs = attempt.get("outputs") or []
    if attempt.get("status") != EVALUATED or not results:
        found.errors += max(1, len(outputs))
        return
    found.detectors.update(results)
    for place in range(max(len(outputs), *(len(scores) for scores in results.values()))):
        output = outputs[place] if place < len(outputs) else None
        scores = {name: scores[place] if place < len(scores) else None for name, scores in results.items()}
        hits = {name: score is not None and float(score) >= threshold for name, score in scores.items()}
        for name, score in scores.items():
            own[probe, name, "nones" if score is None else "fails" if hits[name] else "passed"] += 1
        if any(hits.values()):
            found.answers += 1
            found.failures[category(probe)] += 1
            _keep(found, probe, output)
        elif output is None or None in scores.values():
            found.errors += 1
        else:
            found.answers += 1


def _keep(found: Counts, probe: str, output: Any) -> None:
    if len(found.examples) < MOST_EXAMPLES and isinstance(output, Mapping):
        found.examples.append(f"{category(probe)}: {str(output.get('text') or '')[:LONGEST]}")


def _compare(evals: Mapping[tuple[str, str], Mapping[str, Any]], own: Counter[tuple[str, str, str]]) -> None:
    told = {(probe, name) for probe, name, _ in own}
    if told != set(evals):
        odd = next(iter(told.symmetric_difference(evals)))
        raise SuiteError(f"garak's report: {odd[0]} with {odd[1]} stands in its attempts or its evaluations alone")
    for (probe, name), entry in evals.items():
        for key in ("passed", "fails", "nones"):
            if entry.get(key) != own[probe, name, key]:
                said, counted = entry.get(key), own[probe, name, key]
                raise SuiteError(f"garak's report: {probe} with {name} has {said!r} {key}, its attempts have {counted}")


def category(probe: str) -> str:
    """A probe's name as a report may name it."""
    return re.sub(r"[^a-z0-9]+", "-", probe.lower()).strip("-")[:63].strip("-") or "probe"
