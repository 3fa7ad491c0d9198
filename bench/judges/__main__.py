"""`make judges`: suites that others made, over what learnloop serves, ships and renders. ONLY=openai,manifests: some.

A section is a process, one after another; a suite's packages are in an environment of their own. A table goes to
stderr. The last line of stdout is JSON: {section, suite, version, cases, failures} for each suite. Exit code 1 when
one has failures. `docs/measurements/judges.md` says what each one found.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

from bench.arguments import parser

SECTIONS = {
    "inference-protocol": ["bench.judges.inference_protocol"],
    "openai": ["bench.judges.openai_api"],
    "environments": ["bench.judges.environments"],
    "bsuite": ["bench.judges.bsuite_scores"],
    "manifests": ["bench.judges.manifests"],
    "open-bandit": ["bench.judges.open_bandit"],
    "acto": ["bench.judges.acto"],
    "kstatus": ["bench.judges.kstatus"],
    "gateway-weights": ["bench.judges.gateway_weights"],
}
ON_DEMAND = {"chaos": ["bench.judges.chaos"]}
"""Sections that run when they are named: this one takes root, and the cluster from hack/cluster for itself."""
LONGEST_SECONDS = {"acto": 2400, "chaos": 7200}


def main() -> int:
    """Run the sections; 1 when a suite has failures."""
    arguments = parser(__doc__)
    arguments.add_argument("only", nargs="?", default=",".join(SECTIONS), help="sections, with commas (%(default)s)")
    names = arguments.parse_args().only.split(",")
    if unknown := set(names) - {*SECTIONS, *ON_DEMAND}:
        named = ", ".join([*SECTIONS, *ON_DEMAND])
        arguments.error(f"{', '.join(sorted(unknown))}: not a section: name some of {named}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # a section's processes end with this one
    rows = [row for name in names for row in _section(name)]
    print(json.dumps(rows))
    return int(any(row["failures"] for row in rows))


def _section(name: str) -> list[dict[str, Any]]:
    """A row for each suite of a section; one that ends without its line of JSON is a failure itself."""
    began = time.monotonic()
    try:
        command = [sys.executable, "-m", *(SECTIONS | ON_DEMAND)[name]]
        suites = json.loads(_output(command, LONGEST_SECONDS.get(name, 1200)).splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        suites = [{"suite": name, "version": "", "cases": 0, "failures": [f"the section did not end well: {error}"]}]
    for suite in suites:
        words = f"{name:20} {suite['suite']:32} {suite['version']:14} {suite['cases']:>6} cases"
        print(f"{words} {len(suite['failures']):>4} failures", file=sys.stderr, flush=True)
    print(f"{name:20} {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return [{"section": name} | suite | {"failures": len(suite["failures"])} for suite in suites]


def _output(command: list[str], seconds: float) -> str:
    """Its standard output; none of its processes is left when this returns or raises."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0) as process:
        try:
            return process.communicate(timeout=seconds)[0]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
