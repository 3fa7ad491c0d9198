"""The OpenAPI document against the service: schemathesis makes requests from it, good and bad, and checks the answers.

    python -m bench.pipeline.conformance [--seconds 240] [--seed N]

Real PostgreSQL, real NATS, the product as its image runs it. Every check of schemathesis counts, on every path: no
server error, only documented statuses, content types, headers and bodies, refusal of what the document forbids and
acceptance of what it allows, sequences of requests along the document's links. One exception: what the document allows
may be refused where JSON Schema has no words for the rule (`BEYOND_SCHEMA`): that a digest is that of the body, that
each line of a text is a memory, and the rules across fields of the Kubernetes kinds, which are CEL there. A memory that
ends before it begins is put right before it is sent (`hooks.in_order`). An operation that got no request was not
checked, so one without is a failure too: give it more seconds. The last line is one JSON object.
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

import httpx

from bench.pipeline.world import pipeline

PHASES = "examples,coverage,fuzzing,stateful"
METHODS = ("get", "put", "post", "delete", "patch", "head", "options", "trace")

BEYOND_SCHEMA = (
    "PUT /api/v1/artifacts",
    "PUT /api/v1/training/runs/{job}/checkpoint",
    "POST /api/v1/memory/import",
    "PUT /api/v1/rewards/policies/{name}/revisions/{revision}",
    "POST /api/v1/rewards/dry-run",
    "POST /api/v1/rewards/bias",
    "POST /api/v1/memory/retrieve",  # of an agent's group, which only some have
    "POST /api/v1/training/start",
    "POST /api/v1/preferences",
    "PUT /api/v1/models/{deployment}/gates/{job}/report",
)


def explore(url: str, directory: Path, *, seconds: int, seed: int, phases: str = PHASES) -> dict[str, Any]:
    """Runs schemathesis for so long and sums up what it found.

    Returns:
        Requests by phase and of all phases, the operations of the document that got none, schemathesis's return code
        (0: it found nothing), and what it printed.

    Raises:
        httpx.HTTPError: the document is missing.
    """
    document = httpx.get(f"{url}/openapi.json", timeout=60, trust_env=False).raise_for_status().json()
    report = directory / "events.ndjson"
    (directory / "schemathesis.toml").write_text(
        "".join(
            f'[[operations]]\ninclude-name = "{name}"\nchecks.positive_data_acceptance.enabled = false\n'
            for name in BEYOND_SCHEMA
        )
    )
    environment = os.environ | {"SCHEMATHESIS_HOOKS": "bench.pipeline.hooks", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [str(Path(sys.executable).parent / "schemathesis"), "run", f"{url}/openapi.json", "--phases", phases]
    bounds = ["--max-time", str(seconds), "--request-timeout", "30", "--seed", str(seed), "--workers", "1"]
    output = ["--report", "ndjson", "--report-ndjson-path", str(report), "--no-color", "--continue-on-failure"]

    health = ["--suppress-health-check", "all", "--no-shrink", "--warnings", "off"]
    done = subprocess.run(
        [*command, *bounds, *output, *health],
        capture_output=True,
        text=True,
        cwd=directory,
        timeout=seconds * 3 + 120,
        env=environment,
    )
    return {**summed(report, operations(document)), "returncode": done.returncode, "output": done.stdout + done.stderr}


def operations(document: dict[str, Any]) -> set[str]:
    """As schemathesis calls them: `PUT /api/v1/artifacts`."""
    return {
        f"{method.upper()} {path}" for path, item in document["paths"].items() for method in item if method in METHODS
    }


def summed(report: Path, expected: set[str]) -> dict[str, Any]:
    """Requests by phase, and which operations had none outside of sequences, from the events of a run."""
    requests: dict[str, int] = {}
    left = set(expected)
    for line in report.read_text().splitlines() if report.exists() else ():
        event = json.loads(line).get("ScenarioFinished")
        if event is not None:
            recorder = event.get("recorder", {})
            cases = len(recorder.get("cases", {}))
            requests[event["phase"]] = requests.get(event["phase"], 0) + cases
            if cases:
                left.discard(recorder.get("label"))  # of a sequence: no operation's name
    return {"requests": requests, "requests_sent": sum(requests.values()), "not_exercised": sorted(left)}


def holds(result: dict[str, Any]) -> bool:
    """Nothing was found, and every operation was asked."""
    return result["returncode"] == 0 and result["requests_sent"] > 0 and not result["not_exercised"]


def main() -> int:
    """Exit code 1 when anything was found, or an operation got no request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=240)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--phases", default=PHASES)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as text, pipeline(LOG_LEVEL="ERROR") as (product, _, _):
        started = time.perf_counter()
        result = explore(
            f"http://127.0.0.1:{product.port}",
            Path(text),
            seconds=options.seconds,
            seed=options.seed,
            phases=options.phases,
        )
        result["wall_seconds"] = round(time.perf_counter() - started, 1)
    print(result.pop("output")[-60_000:])
    print(json.dumps(result | {"operations_not_exercised": len(result["not_exercised"])}))
    return 0 if holds(result) else 1


if __name__ == "__main__":
    sys.exit(main())
