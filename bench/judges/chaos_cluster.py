"""`python -m bench.judges.chaos_cluster NAME …`: probes and actions of chaos.py on the cluster from hack/cluster.

Probes: `answered SHARE`, `weights`, `records`. Actions: `kill COMPONENT`, `cut` and `join COMPONENT`, `fill` and
`free COMPONENT`, `stop DAEMON`, `up`, `restore`, `clock SECONDS`. Exit code 0: it is so, or is done.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster.processes import Processes
from cluster.state_folder import default_state
from demo import install
from demo.api import connect
from demo.narrator import Narrator
from demo.settings import SYSTEM_NAMESPACE, Settings
from testing.real_cluster.cluster_actions import Rig, learnloop, own_namespace

ROOT = Path(__file__).parents[2]
NAMESPACE, POLICY = "judges-chaos", "policy"
FOLDER = Path(os.environ.get("CHAOS_FOLDER", "/tmp/learnloop-chaos"))
"""The kubectl command, when the probes looked last, and weights above their step."""
STEPS = (10, 25, 50, 100)
CONTROL_PLANE = ("kube-apiserver", "etcd")
WATCHERS = ("kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
"""Restarted after etcd was restored, as Kubernetes' own guide asks; learnloop's parts are not."""
STATEFUL = {"postgres": "statefulset/learnloop-postgres"}
READY_SECONDS, RECORD_SECONDS = 300.0, 120.0
FILLER, ROOM_MIB = "filler", 96


class Cluster:
    """The rollout under way."""

    def __init__(self, rig: Rig) -> None:
        self._world, self._release = rig, 0

    def begin_rollout(self) -> tuple[str, str]:
        """A newer release is at its first step; the revisions before and after it."""
        before = self._world.until("a settled policy", self._serving, READY_SECONDS)
        _snapshot()
        self._release += 1
        self._apply()
        canary = self._world.until("a canary with a weight", self._canary, READY_SECONDS)
        (FOLDER / "answered-since").write_text(str(time.time()))
        return before, canary

    def until_promoted(self, after: str, before: str, seconds: float) -> None:
        """The release serves all. What an older etcd has forgotten is applied again, as its owner would."""

        def promoted() -> bool:
            self._apply()
            return self._serving() == after

        self._world.until(f"promotion of {after} over {before}", promoted, seconds, every=3.0)

    def all_recorded(self) -> None:
        """AssertionError: an acknowledged trajectory is missing."""
        self._world.until("all acknowledged trajectories in the data plane", lambda: not _lost(), RECORD_SECONDS)

    def begin(self) -> None:
        """The first release serves, and a user plays."""
        self._apply()
        self._world.until("a policy that serves", self._serving, READY_SECONDS)
        path = "jsonpath={.spec.template.spec.containers[0].image}"
        image = self._world.api.run("get", "deployment", "learnloop-data", "-n", SYSTEM_NAMESPACE, "-o", path)
        self._world.apply(NAMESPACE, player(image, self._world.by_tls))
        self._world.api.run("wait", "-n", NAMESPACE, "--for=condition=Ready", "pod/player", "--timeout=120s")
        self._world.until("an answered episode", lambda: _ledger()[-1:] or None, READY_SECONDS)

    def watch(self, over: threading.Event) -> None:
        """Note each weight that is above the step of the status before it and of the one after it."""
        highest = 100
        while not over.wait(0.3):
            weight = self._world.canary_weight(NAMESPACE, POLICY)
            status = self._world.status(NAMESPACE, "modeldeployments", POLICY)
            if not status:
                continue  # the API server is away
            now = STEPS[status["step"]] if status.get("canary") and status.get("step") is not None else 100
            if weight > max(highest, now) or weight not in (0, *STEPS):
                with (FOLDER / "weights").open("a") as file:
                    file.write(f"{weight} % at a step of {now} %, before of {highest} %\n")
            highest = now

    def _apply(self) -> None:
        spec = {
            "model": {"uri": "uniform://discrete/2?observations=4"},
            "serving": {"pod": {"env": [{"name": "RELEASE", "value": str(self._release)}]}},
            "rollout": {
                "steps": [{"weight": step, "minEpisodes": 20} for step in STEPS[:-1]] + [{"weight": 100}],
                "keepForSeconds": 0,
            },
            "analysis": {"intervalSeconds": 1, "metrics": [{"name": "errors", "type": "errors", "max": 0.05}]},
        }
        self._world.apply(NAMESPACE, learnloop("ModelDeployment", POLICY, spec))

    def _serving(self) -> str | None:
        status = self._world.status(NAMESPACE, "modeldeployments", POLICY)
        settled = status.get("stable") and not status.get("canary") and status.get("phase") in ("Healthy", "Guarding")
        return str(status["stable"]["revision"]) if settled else None

    def _canary(self) -> str | None:
        status = self._world.status(NAMESPACE, "modeldeployments", POLICY)
        return str(status["canary"]["revision"]) if status.get("canary") and status.get("weight") else None


def player(image: str, by_tls: bool) -> dict[str, Any]:
    """The user's pod."""
    scheme = "https" if by_tls else "http"
    urls = {
        "LEARNLOOP_DATA_URL": f"{scheme}://learnloop-data.{SYSTEM_NAMESPACE}.svc:8080",
        "POLICY_URL": f"{scheme}://{POLICY}.{NAMESPACE}.svc:8080",
    }
    sources = [
        {"serviceAccountToken": {"audience": "learnloop", "path": "token", "expirationSeconds": 3600}},
        {"configMap": {"name": "learnloop-ca", "optional": True, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    ]
    container = {
        "name": "player",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", (Path(__file__).with_name("chaos_player.py")).read_text()],
        "env": [{"name": name, "value": value} for name, value in urls.items()],
        "volumeMounts": [
            {"name": "token", "mountPath": "/var/run/secrets/learnloop.dev", "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "containers": [container],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": [{"name": "token", "projected": {"sources": sources}}, {"name": "tmp", "emptyDir": {}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "player"}, "spec": spec}


@contextmanager
def prepared() -> Iterator[Cluster]:
    """A cluster with learnloop, a policy that serves, and a user who plays; all are left but the namespace."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    kubectl = install.prepare(Settings.read(), Narrator())
    (FOLDER / "kubectl").write_text(json.dumps([kubectl, os.environ.get("KUBECONFIG", "")]))
    over = threading.Event()
    with connect(kubectl) as api:
        cluster = Cluster(Rig(api))
        for _ in own_namespace(api, NAMESPACE):
            cluster.begin()
            watching = threading.Thread(target=cluster.watch, args=(over,), daemon=True)
            watching.start()
            try:
                yield cluster
            finally:
                over.set()
                watching.join(20.0)


def kubectl(*words: str, check: bool = True) -> str:
    command, kubeconfig = json.loads((FOLDER / "kubectl").read_text())
    environment = os.environ | ({"KUBECONFIG": kubeconfig} if kubeconfig else {})
    done = subprocess.run([*command, *words], env=environment, capture_output=True, text=True, timeout=300)
    if check and done.returncode:
        raise RuntimeError(f"kubectl {' '.join(words)[:200]}: {done.stderr[-600:]}")
    return done.stdout


def _ledger() -> list[dict[str, Any]]:
    lines = kubectl("exec", "-n", NAMESPACE, "player", "--", "cat", "/tmp/ledger.jsonl", check=False).splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]


def _lost() -> list[str]:
    script = (Path(__file__).with_name("chaos_player.py")).read_text()
    lost: list[str] = json.loads(kubectl("exec", "-n", NAMESPACE, "player", "--", "python3", "-c", script, "lost"))
    return lost


# Probes.


def answered(share: str) -> None:
    """That share of the episodes since the last look got its answers."""
    mark = FOLDER / "answered-since"
    since = float(mark.read_text())
    time.sleep(5.0)
    mark.write_text(str(time.time()))
    whys = [line["why"] for line in _ledger() if line.get("at", 0.0) >= since]
    failed = [why for why in whys if why]
    assert whys, "no episode was played"
    assert len(failed) <= (1.0 - float(share)) * len(whys), f"{len(failed)} of {len(whys)} failed: {failed[:3]}"


def weights() -> None:
    """No weight was above its step, since the beginning."""
    file = FOLDER / "weights"
    assert not file.exists(), file.read_text()[:2000]


def records() -> None:
    """Acknowledged trajectories are stored, after a while."""
    until("acknowledged trajectories", lambda: not _lost(), RECORD_SECONDS)


def ready() -> None:
    """Every part of the installation has its pods."""

    def rolled_out() -> bool:
        names = kubectl("get", "deployments,statefulsets", "-n", SYSTEM_NAMESPACE, "-o", "name").split()
        for name in names:
            kubectl("rollout", "status", "-n", SYSTEM_NAMESPACE, "--timeout=5s", name)
        return bool(names)

    until("every part", rolled_out, READY_SECONDS)


# Actions.


def pods(component: str) -> list[dict[str, Any]]:
    """Of a part of the installation, or of the rollout's canary."""
    if component != "canary":
        selector, namespace = f"app.kubernetes.io/component={component}", SYSTEM_NAMESPACE
    else:
        path = "jsonpath={.status.canary.revision}"
        revision = kubectl("get", "modeldeployment", POLICY, "-n", NAMESPACE, "-o", path)
        selector, namespace = f"learnloop.dev/revision={revision}", NAMESPACE
    answer = kubectl("get", "pods", "-n", namespace, "-l", selector, "-o", "json")
    items: list[dict[str, Any]] = json.loads(answer)["items"]
    assert items, f"no pods of {component}"
    return items


def kill(component: str) -> None:
    """kill -9, without grace."""
    for pod in pods(component):
        where = ("-n", pod["metadata"]["namespace"], pod["metadata"]["name"])
        kubectl("delete", "pod", *where, "--grace-period=0", "--force")


def cut(component: str, change: str = "--insert") -> None:
    """No packet enters or leaves its pods, but on loopback."""
    for pod in pods(component):
        uid = pod["metadata"]["uid"]
        process = next(pid for pid in _pids() if uid in _cgroup(pid) or uid.replace("-", "_") in _cgroup(pid))
        for chain, card in (("INPUT", "--in-interface"), ("OUTPUT", "--out-interface")):
            rule = ["iptables", "--wait", change, chain, "!", card, "lo", "--jump", "DROP"]
            subprocess.run(["nsenter", "--target", str(process), "--net", *rule], check=change == "--insert")


def join(component: str) -> None:
    """The end of `cut`."""
    cut(component, "--delete")


def _pids() -> Iterator[int]:
    return (int(entry) for entry in os.listdir("/proc") if entry.isdigit())


def _cgroup(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return ""


def fill(component: str) -> None:
    """Its volume moves to a small file system, which is then full."""
    folder = _volume(component)

    def move() -> None:
        used = sum(file.stat().st_blocks for file in folder.rglob("*") if not file.is_symlink()) // 2048
        spare = folder.with_name(f"{folder.name}.spare")
        subprocess.run(["cp", "--archive", str(folder), str(spare)], check=True)
        size = f"size={used + ROOM_MIB}m,mode={folder.stat().st_mode & 0o7777:o}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "chaos", str(folder)], check=True)
        subprocess.run(["cp", "--archive", f"{spare}/.", str(folder)], check=True)

    _while_down(component, move)
    with (folder / FILLER).open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(2**20))
            except OSError:
                return


def free(component: str) -> None:
    """The end of `fill`: there is room again, and then the old file system."""
    folder = _volume(component)
    (folder / FILLER).unlink(missing_ok=True)
    ready()

    def move_back() -> None:
        spare = folder.with_name(f"{folder.name}.spare")
        shutil.rmtree(spare)
        subprocess.run(["cp", "--archive", str(folder), str(spare)], check=True)
        subprocess.run(["umount", str(folder)], check=True)
        shutil.rmtree(folder)
        spare.rename(folder)

    _while_down(component, move_back)


def _volume(component: str) -> Path:
    [claim] = [v["persistentVolumeClaim"]["claimName"] for v in pods(component)[0]["spec"]["volumes"]
               if "persistentVolumeClaim" in v]  # fmt: skip
    volume = kubectl("get", "pvc", "-n", SYSTEM_NAMESPACE, claim, "-o", "jsonpath={.spec.volumeName}")
    return Path(kubectl("get", "pv", volume, "-o", "jsonpath={.spec.local.path}"))


def _while_down(component: str, work: Callable[[], None]) -> None:
    name = STATEFUL[component]
    selector = f"app.kubernetes.io/component={component}"
    kubectl("scale", "-n", SYSTEM_NAMESPACE, name, "--replicas=0")
    kubectl("wait", "-n", SYSTEM_NAMESPACE, "--for=delete", "pod", "-l", selector, "--timeout=120s")
    try:
        work()
    finally:
        kubectl("scale", "-n", SYSTEM_NAMESPACE, name, "--replicas=1")
        kubectl("rollout", "status", "-n", SYSTEM_NAMESPACE, name, "--timeout=180s")


def stop(daemon: str) -> None:
    Processes(default_state(control_plane_only=False)).stop(daemon, 0.0)


def up() -> None:
    """The cluster has all its processes again."""
    subprocess.run([sys.executable, str(ROOT / "hack" / "cluster"), "up"], check=True, stdout=sys.stderr)


def _snapshot() -> None:
    """etcd's data as they are now, copied while it is down."""
    for daemon in CONTROL_PLANE:
        stop(daemon)
    root = default_state(control_plane_only=False).root
    shutil.rmtree(root / "etcd.snapshot", ignore_errors=True)
    shutil.copytree(root / "etcd", root / "etcd.snapshot")
    up()


def restore() -> None:
    """etcd has its data from before the rollout, and its resource versions, too: `up` follows."""
    for daemon in (*CONTROL_PLANE, *WATCHERS):
        stop(daemon)
    root = default_state(control_plane_only=False).root
    shutil.rmtree(root / "etcd")
    shutil.copytree(root / "etcd.snapshot", root / "etcd")


def clock(seconds: str) -> None:
    time.clock_settime(time.CLOCK_REALTIME, time.clock_gettime(time.CLOCK_REALTIME) + float(seconds))


def until(what: str, holds: Callable[[], bool], seconds: float) -> None:
    """AssertionError after so many seconds; what raises counts as not yet."""
    deadline, last = time.monotonic() + seconds, ""
    while time.monotonic() < deadline:
        try:
            if holds():
                return
        except (RuntimeError, ValueError, subprocess.SubprocessError) as error:
            last = f": {error}"
        time.sleep(2.0)
    raise AssertionError(f"{what}: not within {seconds:.0f} s{last}")


COMMANDS: dict[str, Callable[..., None]] = {
    each.__name__: each
    for each in (answered, weights, records, ready, kill, cut, join, fill, free, stop, up, restore, clock)
}


def main(words: list[str]) -> int:
    """1 when a probe does not hold, or an action fails."""
    name, *arguments = words
    try:
        COMMANDS[name](*arguments)
    except (AssertionError, RuntimeError, OSError, StopIteration, subprocess.SubprocessError) as error:
        print(f"{name} {' '.join(arguments)}: {type(error).__name__}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
