"""Forged proofs: pods outside of a run's ranks report it, before a real API server that says who made each pod.

The true rank is asked first and last: a data plane that refuses everybody would hold off nothing.
"""

import asyncio
import base64
import hashlib
import json
import random
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import yaml

from bench.adversary.finding import Finding
from bench.adversary.rig import ATTACKER, VICTIM
from learnloop_api import names
from learnloop_api.wire.training import Heartbeat, Proof
from testing.servers.data_plane_process import Product, postgres
from testing.servers.kube_api_server import api_server
from testing.training.training_builders import heartbeat, proof

RUN, OTHER_RUN, SYSTEM = "run", "other-run", "data-plane"
JOB_SPEC = {"algorithm": "ppo", "totalSteps": 1000, "data": {"environment": "CartPole-v1"}}
AT_ONCE = 8
Kubectl = Callable[..., str]
Call = tuple[str, str, dict[str, str], bytes]


def attack(reports: int, seed: int) -> Finding:
    """So many reports by strangers, in a cluster of its own."""
    with api_server() as kubeconfig, postgres() as database, tempfile.TemporaryDirectory() as text:
        cluster = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
        kubectl = _kubectl(kubeconfig)
        ca, token = Path(text) / "ca.crt", Path(text) / "token"
        ca.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
        for namespace in (SYSTEM, VICTIM, ATTACKER):
            kubectl("create", "namespace", namespace)
            kubectl("create", "serviceaccount", "default", "-n", namespace)  # no controller manager runs here
        kubectl("create", "clusterrolebinding", SYSTEM, "--clusterrole=view", f"--serviceaccount={SYSTEM}:default")
        rule = ["--verb=get,list", "--resource=trainingjobs.learnloop.dev,pods,jobs.batch"]
        kubectl("create", "clusterrole", "reads-gangs", *rule)
        kubectl(
            "create", "clusterrolebinding", "reads-gangs", "--clusterrole=reads-gangs",
            f"--serviceaccount={SYSTEM}:default",
        )  # fmt: skip
        token.write_text(kubectl("create", "token", "default", "-n", SYSTEM, "--duration=8h"))
        callers = _callers(kubectl)
        artifacts = Path(text) / "artifacts"
        artifacts.mkdir()
        checks = {
            "AUTH": "jwks",
            "ROLES": "off",
            "KUBE_URL": cluster["server"],
            "JWKS_URL": f"{cluster['server']}/openid/v1/jwks",
            "JWKS_TOKEN_FILE": str(token),
            "JWKS_CA_FILE": str(ca),
        }
        with Product(str(database.get_uri()), Path(database.pgdata), artifacts, **checks) as product:
            return asyncio.run(_attacked(product.port, callers, reports, random.Random(seed)))


async def _attacked(port: int, callers: dict[str, str], reports: int, rng: random.Random) -> Finding:
    finding, places = Finding(tried=reports), asyncio.Semaphore(AT_ONCE)
    rank = callers.pop("rank")
    base = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(base_url=base, timeout=60, trust_env=False) as client:

        async def sent(call: Call, token: str) -> httpx.Response:
            method, path, headers, body = call
            return await client.request(
                method, path, headers={**headers, "Authorization": f"Bearer {token}"}, content=body
            )

        begun = await sent(_beat(rng, attempt=0), rank)
        if not begun.is_success:
            raise SystemExit(f"the true rank is refused, so nothing is measured: {begun.status_code} {begun.text}")
        before = (await client.get(f"/api/v1/training/runs/{RUN}", headers=_as(rank))).json()

        async def one() -> None:
            async with places:
                who = rng.choice([*callers, "rank of another attempt", "altered token"])
                if who == "rank of another attempt":
                    call, token = rng.choice([_beat, _proof])(rng, attempt=rng.randrange(1, 50)), rank
                else:
                    call = rng.choice([_beat, _proof, _checkpoint])(rng, attempt=0)
                    token = _altered(rank, rng) if who == "altered token" else callers[who]
                if rng.random() < 0.3:
                    call[2][names.HEADER_NAMESPACE] = VICTIM
                answer = await sent(call, token)
                if answer.is_success and not (ATTACKER in who and names.HEADER_NAMESPACE not in call[2]):
                    finding.breaches.append(f"{who}: {call[0]} {call[1]}: {answer.status_code} {answer.text[:100]}")

        await asyncio.gather(*(one() for _ in range(reports)))
        after = (await client.get(f"/api/v1/training/runs/{RUN}", headers=_as(rank))).json()
        for state in (before, after):
            state.pop("heartbeat_age_seconds", None)
        if before != after:
            finding.breaches.append(
                f"the run said {json.dumps(before)[:200]} before and {json.dumps(after)[:200]} after"
            )
        ended = await sent(_proof(rng, attempt=0), rank)
        if not ended.is_success:
            finding.breaches.append(
                f"the true rank was refused after the attack: {ended.status_code} {ended.text[:100]}"
            )
    return finding


def _callers(kubectl: Kubectl) -> dict[str, str]:
    """Tokens by who bears them; `rank` is the true one."""
    blue, red = (_gang(kubectl, namespace, RUN) for namespace in (VICTIM, ATTACKER))
    _gang(kubectl, VICTIM, OTHER_RUN)
    _pod(kubectl, VICTIM, "nobodys", None)
    made_up = {"apiVersion": "batch/v1", "kind": "Job", "name": RUN, "uid": "00000000-0000-4000-8000-000000000000"}
    _pod(kubectl, VICTIM, "claims-a-job", made_up | {"controller": True})
    _pod(kubectl, VICTIM, "claims-the-run", blue | {"controller": True})
    _pod(kubectl, VICTIM, "claims-the-neighbours-run", red | {"controller": True})
    _pod(kubectl, VICTIM, "is-gone", None)
    bearers = {
        "rank": (VICTIM, f"{RUN}-0"),
        "rank of another run": (VICTIM, f"{OTHER_RUN}-0"),
        f"rank of the same name in {ATTACKER}": (ATTACKER, f"{RUN}-0"),
        "unowned pod": (VICTIM, "nobodys"),
        "pod that claims a Job": (VICTIM, "claims-a-job"),
        "pod that claims the TrainingJob": (VICTIM, "claims-the-run"),
        "pod that claims a neighbour's TrainingJob": (VICTIM, "claims-the-neighbours-run"),
        "pod that is gone": (VICTIM, "is-gone"),
    }
    tokens = {
        who: kubectl(
            "create", "token", "default", "-n", namespace, "--audience=learnloop", "--duration=8h",
            "--bound-object-kind=Pod", f"--bound-object-name={pod}",
        )
        for who, (namespace, pod) in bearers.items()
    }  # fmt: skip
    kubectl("delete", "pod", "is-gone", "-n", VICTIM, "--grace-period=0", "--force")
    tokens["token without a pod"] = kubectl("create", "token", "default", "-n", VICTIM, "--audience=learnloop")
    tokens["token for another audience"] = kubectl("create", "token", "default", "-n", VICTIM, "--audience=elsewhere")
    return {who: token.strip() for who, token in tokens.items()}


def _gang(kubectl: Kubectl, namespace: str, name: str) -> dict[str, Any]:
    """A TrainingJob, its Job and its one pod; how the TrainingJob is referred to."""
    run = {"apiVersion": "learnloop.dev/v1alpha1", "kind": "TrainingJob", "spec": JOB_SPEC}
    run_uid = _made(kubectl, namespace, name, run)
    reference = {"apiVersion": run["apiVersion"], "kind": "TrainingJob", "name": name, "uid": run_uid}
    template = {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [_CONTAINER]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": template, "suspend": True}}
    job_uid = _made(kubectl, namespace, name, job, reference | {"controller": True})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job_uid, "controller": True}
    _pod(kubectl, namespace, f"{name}-0", owner)
    return reference


_CONTAINER = {"name": "trainer", "image": "localhost/none"}


def _pod(kubectl: Kubectl, namespace: str, name: str, owner: dict[str, Any] | None) -> None:
    spec = {"serviceAccountName": "default", "containers": [_CONTAINER]}
    _made(kubectl, namespace, name, {"apiVersion": "v1", "kind": "Pod", "spec": spec}, owner)


def _made(
    kubectl: Kubectl, namespace: str, name: str, body: dict[str, Any], owner: dict[str, Any] | None = None
) -> str:
    """The object's UID."""
    owners = {"ownerReferences": [owner]} if owner else {}
    body = {**body, "metadata": {"name": name, "namespace": namespace, **owners}}
    return kubectl("create", "-f", "-", "-o", "jsonpath={.metadata.uid}", given=json.dumps(body))


def _kubectl(kubeconfig: Path) -> Kubectl:
    program = [str(kubeconfig.parent / "bin" / "kubectl"), "--kubeconfig", str(kubeconfig)]

    def run(*arguments: str, given: str | None = None) -> str:
        done = subprocess.run([*program, *arguments], input=given, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise SystemExit(f"kubectl {' '.join(arguments[:4])}: {done.stderr.strip()}")
        return done.stdout

    return run


def _as(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _beat(rng: random.Random, attempt: int) -> Call:
    body: Heartbeat = heartbeat(attempt, rng.randrange(1000), job=RUN)
    return "PUT", f"/api/v1/training/runs/{RUN}/heartbeat", {}, body.model_dump_json().encode()


def _proof(rng: random.Random, attempt: int) -> Call:
    digest = hashlib.sha256(rng.randbytes(8)).hexdigest()
    claims = {"artifact_sha256": digest, "artifact_uri": f"learnloop://{VICTIM}/{digest}", "attempts": attempt + 1}
    body: Proof = proof(job=RUN, **claims)
    return "PUT", f"/api/v1/training/runs/{RUN}/proof", {}, body.model_dump_json().encode()


def _checkpoint(rng: random.Random, attempt: int) -> Call:
    body = rng.randbytes(64)
    headers = {"x-learnloop-sha256": hashlib.sha256(body).hexdigest(), "x-learnloop-step": str(rng.randrange(10**6))}
    return "PUT", f"/api/v1/training/runs/{RUN}/checkpoint", headers, body


def _altered(token: str, rng: random.Random) -> str:
    """Another letter in its payload or its signature."""
    place = rng.randrange(token.index(".") + 1, len(token) - 2)
    return token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]
