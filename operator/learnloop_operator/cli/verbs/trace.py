"""`kubectl learnloop trace NAME`: from the model in front of users back to the experience behind it."""

import argparse

from learnloop_operator.cli.access.cluster import Cluster, Object
from learnloop_operator.cli.text.aligned_rows import number, rows
from learnloop_operator.cli.text.aligned_rows import status as status_of

NAME = "trace"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which model."""
    parser.add_argument("name", help="a ModelDeployment")
    parser.add_argument("--arm", choices=("stable", "canary", "previous"), default="stable")


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """Deployment → run → reward policy → trajectories; says where the trail ends."""
    deployment = cluster.get("modeldeployments", options.name)
    arm = status_of(deployment).get(options.arm)
    if not arm:
        return f"ModelDeployment {options.name} has no {options.arm} arm now: nothing to trace"
    pairs = [
        ("model", f"{options.name}/{arm['revision']} ({options.arm})"),
        ("uri", arm["uri"]),
        ("sha256", arm.get("sha256")),
        ("served", _served(arm)),
    ]
    job = _origin(cluster, arm)
    if job is None:
        pairs.append(("origin", _no_origin(arm)))
        return rows(pairs)
    return rows(pairs + _run(job) + _experience(cluster, job))


def _served(arm: Object) -> str | None:
    if arm.get("episodes") is None:
        return None
    return f"{arm['episodes']} episodes judged, mean return {number(arm.get('meanReturn')) or 'unknown'}"


def _origin(cluster: Cluster, arm: Object) -> Object | None:
    """The run whose artifact this is: by digest, which nobody can mistake."""
    if not arm.get("sha256"):
        return None
    jobs = cluster.every("trainingjobs")
    proofs = [job for job in jobs if (status_of(job).get("artifact") or {}).get("sha256") == arm["sha256"]]
    return next(iter(proofs), None)


def _no_origin(arm: Object) -> str:
    if str(arm["uri"]).startswith("uniform://"):
        return "the uniform random policy: nothing was learned yet"
    return "no TrainingJob in this namespace made it: pinned from outside, or its job was deleted"


def _run(job: Object) -> list[tuple[str, str | None]]:
    status = status_of(job)
    proof, base = status.get("evaluation") or {}, status.get("baseline") or {}
    held_out = f"{number(proof.get('mean'))} [{number(proof.get('ciLow'))}, {number(proof.get('ciHigh'))}]"
    gates = "; ".join(
        f"{'passed' if gate['passed'] else 'FAILED'} {gate['message']}" for gate in status.get("gates", [])
    )
    spec = job["spec"]
    return [
        ("run", f"{job['metadata']['name']}: {spec['algorithm']}, {spec['totalSteps']} steps, {status.get('phase')}"),
        ("held out", f"{held_out} over {proof.get('episodes')} episodes" if proof else None),
        ("baseline", number(base.get("mean")) if base else None),
        ("gates", gates),
        ("trained", f"{status.get('startedAt')} to {status.get('finishedAt')}"),
    ]


def _experience(cluster: Cluster, job: Object) -> list[tuple[str, str | None]]:
    line = status_of(job).get("lineage") or {}
    policy = line.get("rewardPolicy")
    known = cluster.find("rewardpolicies", policy) if policy else None
    now = status_of(known).get("revision") if known else None
    then = line.get("rewardPolicyRevision")
    moved = f"; now {now}" if now and now != then else ""
    return [
        ("reward", f"{policy} revision {then}{moved}" if policy else None),
        ("agent", line.get("learningAgent")),
        (
            "experience",
            f"{line['trajectories']} trajectories when it began" if line.get("trajectories") is not None else None,
        ),
    ]
