"""Chaos Toolkit's experiments on the cluster of the end-to-end tests, each while a rollout is under way.

    make judges ONLY=chaos                              # every fault of FAULTS
    python -m bench.judges.chaos api-server,disk-full   # some
    python -m bench.judges.chaos --write FOLDER         # their experiments alone, as JSON; needs no cluster

An experiment has Chaos Toolkit's own form: a steady state before and after, an action, and what undoes it. Its probes
and actions are processes, `python -m bench.judges.chaos_cluster NAME`. The steady state: users' episodes are answered,
the canary's weight is one of its steps and not above the step that its status names, and no record that the data
plane acknowledged is missing (as verl#7579 counts lost work: by name). After each fault the rollout goes on to its end.

`clock` moves the clock of this whole machine, and is done with CHAOS_CLOCK=1 alone.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.arguments import parser
from bench.judges import chaos_cluster
from bench.judges.cases import Suite, finish

ROOT = Path(__file__).parents[2]
PACKAGE, VERSION = "chaostoolkit", "1.19.0"
PROMOTED_SECONDS = 600.0
EXPERIMENT_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class Fault:
    """An action, how long it lasts, and what undoes it; `answered`: the least share of users' episodes meanwhile."""

    title: str
    action: tuple[str, ...]
    seconds: float = 0.0
    undo: tuple[str, ...] = ()
    answered: float = 0.99


FAULTS: Mapping[str, Fault] = {
    "operator": Fault("the operator is killed", ("kill", "operator"), 10.0),
    "policy-servers": Fault("the canary's policy servers are killed", ("kill", "canary"), 10.0, answered=0.9),
    "data-plane": Fault("the data plane is killed", ("kill", "data-plane"), 10.0),
    "nats": Fault("NATS is killed", ("kill", "nats"), 10.0),
    "prometheus": Fault("Prometheus is killed", ("kill", "prometheus"), 20.0),
    "postgresql": Fault("PostgreSQL is killed, and starts from its volume", ("kill", "postgres"), 30.0),
    "network": Fault("the operator reaches no one", ("cut", "operator"), 60.0, ("join", "operator")),
    "data-network": Fault("the data plane reaches no one", ("cut", "data-plane"), 60.0, ("join", "data-plane")),
    "disk-full": Fault("PostgreSQL's volume is full", ("fill", "postgres"), 45.0, ("free", "postgres")),
    "api-server": Fault("the API server is away for three minutes", ("stop", "kube-apiserver"), 180.0, ("up",)),
    "etcd": Fault("etcd is restored from a snapshot before the rollout", ("restore",), 5.0, ("up",), answered=0.9),
    "clock": Fault("the clock goes an hour ahead, and back", ("clock", "3600"), 30.0, ("clock", "-3600"), answered=0.9),
}
OWN_CONSENT = {"clock": "CHAOS_CLOCK"}


def experiment(fault: Fault) -> dict[str, Any]:
    """Chaos Toolkit's document of a fault."""
    answered = ("answered", str(fault.answered))
    probes = {"episodes are answered": answered, "weights are steps": ("weights",), "nothing is lost": ("records",)}
    return {
        "version": "1.0.0",
        "title": fault.title,
        "description": "While a rollout is under way.",
        "steady-state-hypothesis": {
            "title": "users are served, the weight keeps to its steps, and nothing acknowledged is lost",
            "probes": [
                {"type": "probe", "name": name, "tolerance": 0, "provider": _process(*words)}
                for name, words in probes.items()
            ],
        },
        "method": [
            {
                "type": "action",
                "name": fault.title,
                "provider": _process(*fault.action),
                "pauses": {"after": fault.seconds},
            },
            *([{"type": "action", "name": "undo", "provider": _process(*fault.undo)}] if fault.undo else ()),
            {"type": "action", "name": "every part is ready", "provider": _process("ready")},
        ],
        "rollbacks": [],
    }


def _process(*words: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.judges.chaos_cluster", *words]
    return {"type": "process", "path": command[0], "arguments": command[1:], "timeout": EXPERIMENT_SECONDS}


def main() -> int:
    """1 when a fault breaks the steady state, or a rollout does not end."""
    arguments = parser(__doc__)
    arguments.add_argument("only", nargs="?", default=",".join(FAULTS), help="faults, with commas (%(default)s)")
    arguments.add_argument("--write", type=Path, metavar="FOLDER", help="write the experiments, and validate them")
    options = arguments.parse_args()
    names = options.only.split(",")
    if unknown := set(names) - FAULTS.keys():
        arguments.error(f"{', '.join(sorted(unknown))}: not a fault: name some of {', '.join(FAULTS)}")
    suite = Suite("Chaos Toolkit", VERSION)
    if options.write:
        for name in names:
            with suite.case(name):
                _chaos("validate", _written(options.write, name))
        return finish(suite)
    with tempfile.TemporaryDirectory() as text, chaos_cluster.prepared() as cluster:
        for name in names:
            if (consent := OWN_CONSENT.get(name)) and os.environ.get(consent) != "1":
                print(f"chaos: {name} is left out: it takes {consent}=1", file=sys.stderr)
                continue
            with suite.case(FAULTS[name].title):
                before, after = cluster.begin_rollout()
                journal = Path(text) / f"{name}-journal.json"
                _chaos("run", "--journal-path", str(journal), _written(Path(text), name))
                for sentence in _deviations(json.loads(journal.read_text())):
                    raise AssertionError(sentence)
                cluster.until_promoted(after, before, PROMOTED_SECONDS)
                cluster.all_recorded()
    return finish(suite)


def _written(folder: Path, name: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.json"
    file.write_text(json.dumps(experiment(FAULTS[name]), indent=2))
    return str(file)


def _chaos(*words: str) -> None:
    made = [str(ROOT / "bench" / "peer_venv"), sys.executable, PACKAGE, f"{PACKAGE}=={VERSION}"]
    python = Path(subprocess.run(made, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())
    began = time.monotonic()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "hack")])}
    command = [str(python.with_name("chaos")), "--log-file", os.devnull, *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=sys.stderr)
    print(f"chaos {words[0]}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    if words[0] == "validate" and done.returncode:
        raise ValueError(f"chaos validate ends with {done.returncode}")


def _deviations(journal: Mapping[str, Any]) -> Iterator[str]:
    """Why the fault broke the steady state, by Chaos Toolkit's journal."""
    for when, states in journal["steady_states"].items():
        for probe in (states or {}).get("probes", ()):
            if not probe["tolerance_met"]:
                yield f"{when} the fault: {probe['activity']['name']}: {probe.get('output')}"
    for run in journal["run"]:
        if run["status"] != "succeeded" or (run.get("output") or {}).get("status", 0):
            yield f"{run['activity']['name']}: {run.get('exception') or run.get('output')}"
    if journal["status"] != "completed":
        yield f"the experiment is {journal['status']}"


if __name__ == "__main__":
    sys.exit(main())
