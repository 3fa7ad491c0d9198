"""kstatus of sigs.k8s.io/cli-utils on every status that the operator decides in its tests and simulations.

`pytest -p bench.judges.kstatus` writes each status of another phase or other conditions to the file KSTATUS_FILE.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.judges.cases import Suite, finish
from go_programs import go_build
from learnloop_api.names import API_VERSION
from learnloop_operator.core.plan import Plan

MODULE = go_build.Module(
    "kstatus", {"kstatus": "learnloop.dev/bench/kstatus"}, sources=Path(__file__).parent / "go_modules"
)
TESTS = (
    *(f"tests/unit/operator/{name}" for name in ("agent", "core", "memory_service", "training")),
    *(f"tests/rollouts/{name}" for name in ("holds", "experiments", "test_approvals_time_out.py", "test_blocked.py")),
    *(f"tests/rollouts/{name}.py" for name in ("test_gates", "test_orders", "test_overrides", "test_shadow_steps")),
)
KINDS = {
    "rollout": "ModelDeployment",
    "training": "TrainingJob",
    "agents": "LearningAgent",
    "memory_services": "MemoryService",
    "rewards": "RewardPolicy",
}
"""By the operator's package that decides them."""
_cases: dict[str, Any] = {}


def pytest_configure() -> None:
    """Remember each status of which a plan is made."""
    made = Plan.__init__

    def remembered(self: Plan, *values: Any, **named: Any) -> None:
        made(self, *values, **named)
        package = sys._getframe(1).f_globals["__name__"].split(".")[1:2]
        if kind := KINDS.get("".join(package)):
            status = json.loads(json.dumps(self.status, default=str))
            words = sorted((it["type"], it["status"], it["reason"]) for it in status.get("conditions", ()))
            _cases.setdefault(json.dumps([kind, status.get("phase"), words]), {"kind": kind, "status": status})

    Plan.__init__ = remembered  # type: ignore[method-assign]


def pytest_unconfigure() -> None:
    Path(os.environ["KSTATUS_FILE"]).write_text(json.dumps(list(_cases.values())))


def main() -> int:
    """1 when kstatus sees another health than the phase says."""
    suite = Suite("kstatus, sigs.k8s.io/cli-utils", "v0.37.2")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "statuses.json"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "bench.judges.kstatus", *TESTS]
        done = subprocess.run(command, env={**os.environ, "KSTATUS_FILE": str(file)}, stdout=sys.stderr, check=False)
        with suite.case("the tests that make the statuses pass"):
            assert done.returncode == 0, f"pytest ended with {done.returncode}"
        judge(suite, json.loads(file.read_text()))
    return finish(suite)


def judge(suite: Suite, items: list[dict[str, Any]]) -> None:
    """Each status as it is, with a newer spec, and of an object that is being deleted."""
    cases = [(item, wanted, obj) for item in items for wanted, obj in _objects(item)]
    program = go_build.ensure(MODULE, MODULE.programs)["kstatus"]
    text = "\n".join(json.dumps(obj) for *_, obj in cases)
    done = subprocess.run([program], input=text, capture_output=True, text=True, check=True, timeout=120)
    for (item, wanted, _), line in zip(cases, done.stdout.splitlines(), strict=True):
        status, health = item["status"], json.loads(line)["status"]
        with suite.case(f"{item['kind']} {status.get('phase')}: {json.dumps(status.get('conditions'))[:600]}"):
            assert health == wanted, f"{health}, not {wanted}"


def _objects(item: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    status = item["status"]
    generation = status.get("observedGeneration", 1)
    metadata = {"name": "x", "namespace": "ns", "generation": generation}
    made = {"apiVersion": API_VERSION, "kind": item["kind"], "metadata": metadata, "status": status}
    newer = {**made, "metadata": {**metadata, "generation": generation + 1}}
    going = {**made, "metadata": {**metadata, "deletionTimestamp": "2026-11-29T00:00:00Z"}}
    return [(_health(status), made), ("InProgress", newer), ("Terminating", going)]


def _health(status: dict[str, Any]) -> str:
    """The design's rule: a sentence in Stalled is a failure, Ready is current, everything else is under way."""
    conditions = {item["type"]: item["status"] for item in status.get("conditions", ())}
    if conditions.get("Stalled") == "True":
        return "Failed"
    return "Current" if conditions.get("Ready") == "True" and conditions.get("Reconciling") != "True" else "InProgress"


if __name__ == "__main__":
    sys.exit(main())
