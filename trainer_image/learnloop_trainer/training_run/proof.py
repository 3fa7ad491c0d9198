"""The proof of every run: its artifact is stored, then the proof."""

import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import learnloop_trainer
from learnloop_api.wire.training import ExportedFormat, Parity, Proof, ValidationReport
from learnloop_environments import user_environment
from learnloop_trainer.evaluation import difference, estimate
from learnloop_trainer.store.run_store import digest
from learnloop_trainer.training_order import recipe_sha256
from learnloop_trainer.training_run.training_loop import Run, Training

Returns = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Exported:
    """An artifact, and the fields of its proof that only its kind of training can say."""

    body: bytes
    fields: Mapping[str, Any]
    exports: Sequence[tuple[str, bytes, Parity]] = ()
    """Further formats."""


def versus(ours: Returns, others: Returns, seed: int) -> dict[str, Any]:
    """Fields of a comparison on the same held-out episodes or pairs, at least one."""
    evaluation, baseline = estimate(ours, seed), estimate(others, seed)
    return {"evaluation": evaluation, "baseline": baseline, "difference": difference(ours, others, seed)}


def proven(run: Run, training: Training, validated: ValidationReport | None, made: Exported) -> Proof:
    """Store the artifact and its proof, once the final checkpoint is durable.

    Returns the proof, already durable. `validated`: the evaluation along training.
    """
    order, spec, store = run.order, run.order.spec, run.store
    run.reporter.phase("exporting", "storing artifact and proof")
    checkpoint = run.durable()
    by = order.reward_policy if spec.data.rewards == "policy" else None
    facts = {"engine": spec.trained_by, "world_size": run.group.place.size, "versions": versions()}
    if spec.trained_by == "trl":
        facts["versions"] = versions() | {name: version(name) for name in ("trl", "accelerate", "peft", "datasets")}
    facts |= dict(made.fields)
    proof = Proof(
        job=order.job,
        agent=order.agent,
        algorithm=spec.algorithm,
        environment=spec.data.world,
        seed=spec.seed,
        step=training.learner.step,
        total_steps=spec.total_steps,
        attempts=order.attempt + 1,
        recipe_sha256=recipe_sha256(order),
        update=order.number,
        artifact_uri=store.put_artifact(made.body),
        artifact_sha256=digest(made.body),
        artifact_bytes=len(made.body),
        checkpoint_sha256=checkpoint,
        rewards=spec.data.rewards or "environment",
        reward_policy=None if by is None else by.name,
        reward_policy_revision=None if by is None else by.revision,
        begun_from=training.begun_from or None,
        experience=training.read.note,
        while_training=validated,
        exports=[
            ExportedFormat(
                format=kind, uri=store.put_artifact(body), sha256=digest(body), size_bytes=len(body), parity=parity
            )
            for kind, body, parity in made.exports
        ],
        wall_seconds=max(0.0, time.time() - run.began),
        created_at=datetime.now(UTC),
        **facts,
    )
    store.put_proof(proof)
    return proof


def versions() -> dict[str, str]:
    made = {"python": platform.python_version(), "torch": torch.__version__}
    for package in ("gymnasium", "numpy", "onnx", "onnxruntime", "tokenizers", "transformers"):
        try:
            made[package] = version(package)
        except PackageNotFoundError:  # Debian's packages bring no metadata
            made[package] = "unknown"
    made["learnloop"] = user_environment.digest(Path(learnloop_trainer.__file__).parent.rglob("*.py"))[:12]
    code = user_environment.fingerprint(os.environ)
    return made if code is None else made | {"environment": code}
