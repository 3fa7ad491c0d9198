"""Runs one suite: calibrates its detector, asks the candidate, and writes the report."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from learnloop_api.wire.deployment import MOST_REPORT_BYTES, DetectorReport, GateReport
from learnloop_common.redaction.redactor import Redaction
from learnloop_gates import model_client, recorded_tasks, suites
from learnloop_gates.cases import Case, Reply, Suite, SuiteError, chosen, detector_report, rows

AT_ONCE = 4
EXAMPLES, EXAMPLE_LENGTH = 5, 400
_redacted = Redaction()


SUITES: Mapping[str, Callable[[model_client.SuiteSettings], Suite]] = {
    "refusal": suites.refusal,
    "over-refusal": suites.over_refusal,
    "toxicity": suites.toxicity,
    "counterfactual": suites.counterfactual,
    "injection": suites.injection,
    "leak": suites.leak,
    "format": suites.form,
    "replay": recorded_tasks.replay,
    "cost": recorded_tasks.cost,
}


def suite_of(settings: model_client.SuiteSettings) -> tuple[Suite, bool]:
    """The suite, and whether it asks policy servers rather than a language model.

    Raises:
        SuiteError: the suite is unknown, or its data is missing.
    """
    if settings.builtin not in SUITES:
        raise SuiteError(f"builtin: {settings.builtin!r} unknown suite; set one of {', '.join(SUITES)}")
    if settings.builtin == "replay" and settings.data:
        result = rows(settings.data)
        if recorded_tasks.is_of_numbers(result[0]):
            return recorded_tasks.policy_replay(result), True
    return SUITES[settings.builtin](settings), False


class Client(Protocol):
    """A client that answers cases."""

    def ask(self, case: Case, *, most_tokens: int = 256) -> Reply:
        """Raises Unanswered."""


def run(settings: model_client.SuiteSettings) -> GateReport:
    """Plays the suite and writes its report.

    Raises:
        SuiteError: the suite cannot judge the candidate.
    """
    suite, of_numbers = suite_of(settings)
    token = model_client.token_of(settings.token_file)
    arms = [(settings.candidate_url, settings.candidate)]
    if suite.kind == "pairs" and settings.stable_url:
        arms.append((settings.stable_url, settings.stable))
    clients = [_client(settings, url, revision, token, of_numbers) for url, revision in arms]
    try:
        report = play(settings, suite, clients)
    finally:
        for client in clients:
            client.close()
    content = report.model_dump_json().encode()
    if len(content) > MOST_REPORT_BYTES:
        raise SuiteError(f"the report has {len(content)} bytes, more than {MOST_REPORT_BYTES}: ask for fewer samples")
    Path(settings.report).write_bytes(content)
    return report


def _client(settings: model_client.SuiteSettings, url: str, revision: str, token: str, of_numbers: bool) -> Any:
    if of_numbers:
        return recorded_tasks.PolicyClient(url, settings.deployment, revision, token)
    return model_client.ModelClient(url, settings.deployment, arm=revision, key=token)


def play(settings: model_client.SuiteSettings, suite: Suite, clients: Sequence[Client]) -> GateReport:
    """The report on the first of `clients`; with a second one, compared with it task by task."""
    began = time.monotonic()
    detector = calibrated(suite)
    cases = chosen(suite, settings.samples)
    deadline = began + 0.9 * settings.seconds

    def answered(client: Client, case: Case) -> tuple[Reply, str] | None:
        if time.monotonic() > deadline:
            return None
        try:
            reply = client.ask(case, most_tokens=suite.most_tokens)
            return reply, suite.judge(case, reply)
        except model_client.Unanswered:
            return None

    with ThreadPoolExecutor(AT_ONCE) as pool:
        result = [list(pool.map(lambda case, client=client: answered(client, case), cases)) for client in clients]
    own = result[0]
    whole = [index for index in range(len(cases)) if all(side[index] is not None for side in result)]
    failures = Counter(text[1] for text in own if text is not None and text[1])
    return GateReport(
        suite=settings.suite,
        revision=settings.candidate,
        n=sum(text is not None for text in own),
        failures=dict(failures),
        errors=sum(text is None for side in result for text in side),
        detector=detector,
        pairs=_pairs(suite, cases, result, whole) if len(clients) > 1 else None,
        by_group=_by_group(suite, own) if suite.kind == "groups" else None,
        examples=_examples(cases, own),
        seconds=round(time.monotonic() - began, 3),
    )


def calibrated(suite: Suite) -> DetectorReport:
    """How the detector does on its labelled set. The operator decides whether that is good enough."""
    try:
        outcomes = [(item.fails, bool(suite.judge(item.case, item.reply))) for item in suite.labelled]
    except model_client.Unanswered as error:
        raise SuiteError(f"the detector {suite.detector} does not answer on its calibration set: {error}") from None
    return detector_report(suite.detector, suite.digest, outcomes)


def _pairs(
    suite: Suite, cases: list[Case], replies: list[list[tuple[Reply, str] | None]], whole: list[int]
) -> list[tuple[float, float]]:
    score: Callable[[Case, Reply], float] | None = suite.score

    def value(side: int, index: int) -> float:
        text = replies[side][index]
        assert text is not None, "only whole pairs are scored"
        return round(score(cases[index], text[0]), 6) if score else float(not text[1])

    return [(value(0, index), value(1, index)) for index in whole]


def _by_group(suite: Suite, own: list[tuple[Reply, str] | None]) -> Any:
    width = len(suite.groups)
    prompts = [own[index : index + width] for index in range(0, len(own), width)]
    rows = [[int(bool(text[1])) for text in row if text] for row in prompts if all(row)]
    return {"groups": [_name(group) for group in suite.groups], "rows": rows}


def _name(group: str) -> str:
    stored = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in group.lower()).strip("-")
    if not stored:
        raise SuiteError(f"groups: {group[:40]!r} has no letter of a to z: a report could not name it")
    return stored[:63].strip("-")


def _examples(cases: list[Case], own: list[tuple[Reply, str] | None]) -> list[str]:
    shown = [(case, text) for case, text in zip(cases, own, strict=True) if text and text[1]][:EXAMPLES]
    return [
        _redacted(f"{text[1]}: {case.last[:EXAMPLE_LENGTH]} → {text[0].text[:EXAMPLE_LENGTH]}")[:1000]
        for case, text in shown
    ]
