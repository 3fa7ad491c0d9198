"""`python -m learnloop_gates.garak`: plays garak's probes against the candidate, and writes our report.

Beside what every suite is told: GARAK_PROBES and GARAK_DETECTORS, by comma, as garak names them; GARAK_GENERATIONS,
answers for each prompt; GARAK_PROMPT_CAP, the most prompts of a probe that keeps to it.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import orjson

from learnloop_api import names
from learnloop_api.wire.gates import GateReport
from learnloop_common.redaction.redactor import Redaction
from learnloop_gates.errors import SuiteError
from learnloop_gates.garak.calibration import BYPASS, calibrated, labelled
from learnloop_gates.garak.report import Counts, read_report
from learnloop_gates.model_client import token_of
from learnloop_gates.prompt_files import rows
from learnloop_gates.settings import SuiteSettings, suite_settings

FOLDER = Path("/tmp/garak")
HOMES = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
"""Variables that say where garak may write. It makes folders there as soon as it is imported."""
SEED = 20_260_101
PROBES = "dan.DanInTheWild"
REFUSED_BY_GATEWAYS = ("n", "frequency_penalty", "presence_penalty", "seed")
"""What garak's client sends unasked, and a gateway before a language model does not know."""


def main() -> int:
    """Exit code 0: the report is written; 1: nothing can be said, with the reason on standard error."""
    try:
        settings = suite_settings({**os.environ, "LEARNLOOP_GATE_BUILTIN": "garak"})
        # Here too: its detectors are tried in this process, and a pod's own home cannot be written.
        os.environ |= dict.fromkeys(HOMES, str(FOLDER))
        prefix = FOLDER / "run"
        FOLDER.mkdir(parents=True, exist_ok=True)
        options = FOLDER / "generator.json"
        options.write_bytes(orjson.dumps(generator_options(settings)))
        options.chmod(0o600)
        _play(arguments(os.environ, settings, options, prefix), settings)
        with prefix.with_name("run.report.jsonl").open("rb") as lines:
            counts = read_report(lines)
        report = gate_report(settings, counts)
        Path(settings.report).write_text(report.model_dump_json())
    except (SuiteError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{report.suite}: {report.failed} of {report.n} failed, {report.errors} without an answer")
    return 0


def generator_options(settings: SuiteSettings) -> dict[str, Any]:
    """How garak's OpenAI-compatible client asks the candidate and nobody else."""
    asked = {
        "uri": f"{settings.candidate_url}/v1/",
        "temperature": 0,
        "stop": None,
        "suppressed_params": list(REFUSED_BY_GATEWAYS),
        "extra_params": {"extra_headers": {names.HEADER_ARM: settings.candidate}},
    }
    return {"openai": {"OpenAICompatible": asked}}


def arguments(environment: Mapping[str, str], settings: SuiteSettings, options: Path, prefix: Path) -> list[str]:
    """The command line of garak 0.17."""
    return [
        sys.executable,
        "-m",
        "garak",
        "--target_type=openai.OpenAICompatible",
        f"--target_name={settings.deployment}",
        f"--generator_option_file={options}",
        f"--probes={environment.get('GARAK_PROBES') or PROBES}",
        f"--detectors={environment.get('GARAK_DETECTORS') or BYPASS}",
        f"--generations={_count(environment, 'GARAK_GENERATIONS', 1)}",
        f"--report_prefix={prefix}",
        f"--seed={SEED}",  # a probe draws its prompts: the same ones for every candidate
        "--narrow_output",
    ]


def gate_report(settings: SuiteSettings, counts: Counts) -> GateReport:
    """Our report of what garak counted, with its detectors tried on labelled answers."""
    answers = labelled(rows(settings.data) if settings.data else ())
    redacted = Redaction()
    return GateReport(
        suite=settings.suite,
        revision=settings.candidate,
        n=counts.answers,
        failures=dict(counts.failures),
        errors=counts.errors,
        detector=calibrated(counts.detectors, answers, _scores, counts.version),
        examples=[redacted(item) for item in counts.examples],
    )


def _play(command: Sequence[str], settings: SuiteSettings) -> None:
    key = token_of(settings.token_file) or "none"
    # Nothing is downloaded while a candidate is judged: what a detector needs is in the image.
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **offline, "OPENAICOMPATIBLE_API_KEY": key},
            timeout=0.95 * settings.seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SuiteError(f"garak did not end within {0.95 * settings.seconds:.0f} s: name fewer probes") from None
    if done.returncode:
        raise SuiteError(f"garak ended with exit code {done.returncode}: its output says why")


def _scores(name: str, texts: Sequence[str]) -> list[float | None]:
    """What garak's own detector says of these answers."""
    config, plugins, attempts = (import_module(f"garak.{part}") for part in ("_config", "_plugins", "attempt"))
    config.load_config()
    detector = plugins.load_plugin(f"detectors.{name}", config_root=config)
    found: list[float | None] = []
    for text in texts:
        asked = attempts.Message("How do I do that?", lang="en")
        # An attempt has the language of what was asked, and takes none of its own (garak 0.17).
        attempt = attempts.Attempt(prompt=attempts.Conversation([attempts.Turn("user", asked)]))
        attempt.outputs = [attempts.Message(text, lang="en")]
        found += list(detector.detect(attempt))
    return found


def _count(environment: Mapping[str, str], variable: str, default: int) -> int:
    text = environment.get(variable) or str(default)
    if not text.isdecimal() or not 1 <= int(text) <= 100:
        raise SuiteError(f"{variable} is {text[:40]!r}: set a whole number from 1 to 100")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
