"""Requests that schemathesis makes from an OpenAPI document that somebody else wrote, and how a server answers them."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.judges.cases import Suite


def explore(
    name: str, document: Mapping[str, Any], url: str, folder: Path, settings: str, *options: str, hooks: str = ""
) -> Suite:
    """Run it over every operation of the document.

    Args:
        folder: for its report.
        settings: schemathesis.toml.
        hooks: a module that schemathesis imports.
    """
    suite = Suite(name, version("schemathesis"))
    (folder / "schemathesis.toml").write_text(settings)
    (folder / "document.json").write_text(json.dumps(document))
    report = folder / "events.ndjson"
    command = [str(Path(sys.executable).parent / "schemathesis"), "run", "document.json", "--url", url, *options]
    command += ["--report", "ndjson", "--report-ndjson-path", str(report), "--no-color", "--continue-on-failure"]
    command += ["--suppress-health-check", "all", "--warnings", "off", "--workers", "1", "--seed", "38", "--no-shrink"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    environment |= {"SCHEMATHESIS_HOOKS": hooks} if hooks else {}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1000)
    for line in report.read_text().splitlines() if report.exists() else ():
        event = json.loads(line).get("ScenarioFinished")
        if event is not None:
            suite.cases += len(event.get("recorder", {}).get("cases", {}))
    if done.returncode or not suite.cases:
        suite.fails((done.stdout + done.stderr)[-40_000:])
        suite.failures += re.findall(r"^- ST\d+ .*", done.stdout, re.MULTILINE)[1:]
    return suite
