"""The controllers of Jobs, JobSets and TrainJobs as processes at an API server of the tests: Kubernetes' own Job
controller and garbage collector, JobSet and Kubeflow Trainer v2 with their webhooks. Only kubelets are missing."""

import base64
import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from go_programs import go_build
from testing import certificates
from testing.servers.child_process import running
from testing.servers.ports import held_port

TRAINER, JOBSET = "github.com/kubeflow/trainer/v2", "sigs.k8s.io/jobset"
CONTROLLERS = ("job-controller", "garbage-collector-controller")
READY_SECONDS = 90.0
TICK = 0.1
LOOPBACK = "127.0.0.1"


def sources(module: str) -> Path:
    """The folder of the manifests of JobSet or Trainer."""
    return go_build.module_folder(go_build.TRAINER, module)


@contextmanager
def training_controllers(kubeconfig: Path, folder: Path) -> Iterator[None]:
    """All of them at work, from their first readiness to the end of the block. Builds what is missing, in minutes.

    Raises:
        AssertionError: one is not ready in time, or kubectl refused a manifest; carries what it said.
    """
    programs = go_build.ensure(go_build.TRAINER, go_build.TRAINER.programs)
    kubernetes = go_build.ensure(go_build.KUBE, ["kube-controller-manager"])
    for definitions in (sources(TRAINER) / "manifests/base/crds", sources(JOBSET) / "config/components/crd"):
        _kubectl(kubeconfig, "apply", "--server-side", "-k", str(definitions))
    kinds = ["trainjobs.trainer.kubeflow.org", "clustertrainingruntimes.trainer.kubeflow.org"]
    _established(kubeconfig, *kinds, "jobsets.jobset.x-k8s.io")
    with ExitStack() as stack:
        hooks, probes = ([stack.enter_context(held_port()) for _ in range(2)] for _ in range(2))
        serving = certificates.folder(folder / "k8s-webhook-server" / "serving-certs", certificates.authority())
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "TMPDIR": str(folder)}
        own = {
            "jobset": _jobset(hooks[0], probes[0], serving.path),
            "trainer-controller-manager": _trainer(hooks[1], probes[1]),
        }
        for name, settings in own.items():
            config = folder / f"{name}.yaml"
            config.write_text(yaml.safe_dump(settings))
            stack.enter_context(
                running([str(programs[name]), f"--config={config}"], folder / f"{name}.log", environment)
            )
        controllers = _controllers(kubernetes["kube-controller-manager"], kubeconfig, stack.enter_context(held_port()))
        stack.enter_context(running(controllers, folder / "controllers.log", environment))
        for name, port in zip(own, probes, strict=True):
            _ready(port, folder / f"{name}.log")
        for module, path, port in (
            (JOBSET, "config/components/webhook", hooks[0]),
            (TRAINER, "manifests/base/webhook", hooks[1]),
        ):
            _call_back(kubeconfig, sources(module) / path, port, serving.bundle.read_bytes(), folder)
        yield


def _jobset(hook: int, probe: int, certificate: Path) -> dict[str, Any]:
    return {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"port": hook, "host": LOOPBACK, "certDir": str(certificate)},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{probe}"},
    }


def _trainer(hook: int, probe: int) -> dict[str, Any]:
    # Its settings name no folder of certificates: it looks where TMPDIR leads.
    return {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "certManagement": {"enable": False},
        "webhook": {"port": hook, "host": LOOPBACK},
        "metrics": {"bindAddress": "0", "secureServing": False},
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{probe}"},
    }


def _controllers(program: Path, kubeconfig: Path, port: int) -> list[str]:
    return [
        str(program),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--controllers={','.join(CONTROLLERS)}",
        "--leader-elect=false",
        "--profiling=false",
    ]


def _ready(port: int, log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/readyz", timeout=2.0):
                return
        except (urllib.error.URLError, OSError):
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-3000:]
            time.sleep(TICK)


def _call_back(kubeconfig: Path, source: Path, port: int, bundle: bytes, folder: Path) -> None:
    """The webhooks of a project, as it defines them, at a process of this machine instead of behind a Service."""
    objects = [item for item in yaml.safe_load_all(_kubectl(kubeconfig, "kustomize", str(source))) if item]
    made = [item for item in objects if item["kind"].endswith("WebhookConfiguration")]
    for item in made:
        item["metadata"]["name"] += f"-{port}"  # both projects give theirs the same name
        for hook in item["webhooks"]:
            path = hook["clientConfig"].pop("service")["path"]
            hook["clientConfig"] |= {
                "url": f"https://localhost:{port}{path}",
                "caBundle": base64.b64encode(bundle).decode(),
            }
    file = folder / f"webhooks-{port}.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": made}))
    _kubectl(kubeconfig, "apply", "--server-side", "-f", str(file))


def _established(kubeconfig: Path, *definitions: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    for name in definitions:
        while "True" not in _kubectl(
            kubeconfig, "get", "crd", name, "-o", 'jsonpath={.status.conditions[?(@.type=="Established")].status}'
        ):
            assert time.monotonic() < deadline, f"{name} is not served"
            time.sleep(TICK)


def _kubectl(kubeconfig: Path, *arguments: str) -> str:
    program = kubeconfig.parent / "bin" / "kubectl"
    command = [str(program), "--kubeconfig", str(kubeconfig), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
    return done.stdout
