"""What the operator tells a suite, read from the environment."""

from collections.abc import Mapping
from dataclasses import dataclass

from learnloop_api import names
from learnloop_api.wire.gates import REPORT_FILE
from learnloop_gates.errors import SuiteError


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """Of the container that hands the report in."""

    deployment: str
    job: str
    namespace: str
    data_url: str
    report: str = REPORT_FILE
    token_file: str = names.TOKEN_FILE


@dataclass(frozen=True, slots=True)
class SuiteSettings:
    """Of the container that asks the candidate."""

    suite: str
    builtin: str
    samples: int
    deployment: str
    candidate: str
    """Revision of the candidate."""
    candidate_url: str
    stable: str = ""
    """Revision of what serves; "" where nothing does yet."""
    stable_url: str = ""
    seconds: float = 600.0
    data: str = ""
    """Folder of .jsonl files; "": the suite's own prompts."""
    judge_url: str = ""
    judge_model: str = ""
    judge_key: str = ""
    classifier: str = ""
    report: str = REPORT_FILE
    token_file: str = ""


def delivery_settings(environment: Mapping[str, str]) -> DeliverySettings:
    """Raises SuiteError where something is missing."""
    return DeliverySettings(
        deployment=_given(environment, "LEARNLOOP_MODEL_DEPLOYMENT"),
        job=_given(environment, "LEARNLOOP_GATE_JOB"),
        namespace=_given(environment, names.ENV_NAMESPACE),
        data_url=_given(environment, names.ENV_DATA_URL),
        report=environment.get("LEARNLOOP_GATE_REPORT") or REPORT_FILE,
        token_file=environment.get(names.ENV_TOKEN_FILE) or names.TOKEN_FILE,
    )


def suite_settings(environment: Mapping[str, str]) -> SuiteSettings:
    """Raises SuiteError where something is missing or no number."""
    return SuiteSettings(
        suite=_given(environment, "LEARNLOOP_GATE_SUITE"),
        builtin=_given(environment, "LEARNLOOP_GATE_BUILTIN"),
        samples=int(_number(environment, "LEARNLOOP_GATE_SAMPLES", 100, 1, 100_000)),
        deployment=_given(environment, "LEARNLOOP_MODEL_DEPLOYMENT"),
        candidate=_given(environment, "LEARNLOOP_GATE_CANDIDATE"),
        candidate_url=_given(environment, "LEARNLOOP_GATE_CANDIDATE_URL").rstrip("/"),
        stable=environment.get("LEARNLOOP_GATE_STABLE", ""),
        stable_url=environment.get("LEARNLOOP_GATE_STABLE_URL", "").rstrip("/"),
        seconds=_number(environment, "LEARNLOOP_GATE_SECONDS", 600, 1, 1e7),
        data=environment.get("LEARNLOOP_GATE_DATA", ""),
        judge_url=environment.get("LEARNLOOP_GATE_JUDGE_URL", "").rstrip("/"),
        judge_model=environment.get("LEARNLOOP_GATE_JUDGE_MODEL", ""),
        judge_key=environment.get("LEARNLOOP_GATE_JUDGE_KEY", ""),
        classifier=environment.get("LEARNLOOP_GATE_CLASSIFIER", ""),
        report=environment.get("LEARNLOOP_GATE_REPORT") or REPORT_FILE,
        token_file=environment.get(names.ENV_TOKEN_FILE, ""),
    )


def _given(environment: Mapping[str, str], variable: str) -> str:
    value = environment.get(variable, "")
    if not value:
        raise SuiteError(f"{variable} is missing: a suite runs in the Job that the operator makes for it")
    return value


def _number(environment: Mapping[str, str], variable: str, default: float, low: float, high: float) -> float:
    text = environment.get(variable, "") or str(default)
    try:
        number = float(text)
    except ValueError:
        raise SuiteError(f"{variable} is {text[:80]!r}: set a number") from None
    if not low <= number <= high:
        raise SuiteError(f"{variable} is {text[:80]}: set a number from {low:g} to {high:g}")
    return number
