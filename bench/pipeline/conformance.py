"""The OpenAPI document against the service: schemathesis makes requests from it, good and bad, and checks the answers.

    python -m bench.pipeline.conformance [--seconds 240] [--seed N]

Real PostgreSQL, real NATS, the product as its image runs it. Every check of schemathesis counts (no server error, only
documented statuses, content types, headers and bodies, refusal of what the document forbids, sequences of requests
along the document's links) but two. `positive_data_acceptance`: that a digest is that of the body, or that one of two
fields is given, is no business of JSON Schema. `negative_data_rejection`: true is read as 1 and "1" as 1, as pydantic
reads them; `--strict` shows where. Left out is `/api/v1/artifacts/in-use`, whose GET is one of `/{sha256}` and refused
as such. The last line is one JSON object.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.pipeline.world import pipeline

PHASES = "examples,coverage,fuzzing,stateful"


def explore(
    url: str, directory: Path, *, seconds: int, seed: int, phases: str = PHASES, strict: bool = False
) -> dict[str, Any]:
    """Runs schemathesis for so long and sums up what it found.

    Returns:
        Requests by phase, schemathesis's return code (0: it found nothing), and what it printed.
    """
    report = directory / "events.ndjson"
    environment = os.environ | {"SCHEMATHESIS_HOOKS": "bench.pipeline.hooks", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [str(Path(sys.executable).parent / "schemathesis"), "run", f"{url}/openapi.json", "--phases", phases]
    bounds = ["--max-time", str(seconds), "--request-timeout", "30", "--seed", str(seed), "--workers", "1"]
    output = ["--report", "ndjson", "--report-ndjson-path", str(report), "--no-color", "--continue-on-failure"]
    lenient = "positive_data_acceptance" if strict else "positive_data_acceptance,negative_data_rejection"
    output += ["--exclude-checks", lenient, "--exclude-path", "/api/v1/artifacts/in-use"]
    health = ["--suppress-health-check", "all", "--no-shrink", "--warnings", "off"]
    done = subprocess.run(
        [*command, *bounds, *output, *health],
        capture_output=True,
        text=True,
        cwd=directory,
        timeout=seconds * 3 + 120,
        env=environment,
    )
    return {**_summed(report), "returncode": done.returncode, "output": done.stdout + done.stderr}


def _summed(report: Path) -> dict[str, Any]:
    """Requests by phase, from the events of a run."""
    requests: dict[str, int] = {}
    for line in report.read_text().splitlines() if report.exists() else ():
        event = json.loads(line).get("ScenarioFinished")
        if event is not None:
            cases = event.get("recorder", {}).get("cases", {})
            requests[event["phase"]] = requests.get(event["phase"], 0) + len(cases)
    return {"requests": requests}


def main() -> int:
    """Exit code 1 when anything was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=240)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--phases", default=PHASES)
    parser.add_argument("--strict", action="store_true", help="also check that values of another type are refused")
    options = parser.parse_args()
    settings = {"LOG_LEVEL": "ERROR", "AUDIT_KEY": "A" * 43 + "="}
    with tempfile.TemporaryDirectory() as text, pipeline(**settings) as (product, _, _):
        started = time.perf_counter()
        found = explore(
            f"http://127.0.0.1:{product.port}",
            Path(text),
            seconds=options.seconds,
            seed=options.seed,
            phases=options.phases,
            strict=options.strict,
        )
        found["wall_seconds"] = round(time.perf_counter() - started, 1)
    print(found.pop("output")[-60_000:])
    print(json.dumps(found))
    return int(found["returncode"] != 0)


if __name__ == "__main__":
    sys.exit(main())
