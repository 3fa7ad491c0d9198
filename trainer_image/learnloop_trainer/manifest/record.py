"""The manifest of a run: its recipe, what proves it, and the versions that made it."""

import json
import os
import platform
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import learnloop_trainer
from learnloop_api.wire.training import Manifest
from learnloop_environments import own_code
from learnloop_trainer.run import Run
from learnloop_trainer.store.run_store import digest
from learnloop_trainer.training_order import Order

MAY_CHANGE = {"workers", "suspend", "ttl_seconds_after_finished"}
"""Of a TrainingJob's spec while it runs."""
ELSEWHERE = {"pod", "queue", "backend"}
"""Place of a run; the operator keeps it from the order."""


def recipe_sha256(order: Order) -> str:
    """SHA-256 over the order and the code of the user's own environment.

    Equal for every attempt of a run, whatever its number of ranks; any other difference counts: of a
    hyperparameter, the filter, the rewards, the evaluation, the policy to beat. What a default stands for is part.
    """
    spec = order.spec.model_dump(mode="json", exclude=MAY_CHANGE | ELSEWHERE)
    spec["parameters"] = order.parameters.model_dump(mode="json")
    fields = order.model_dump(mode="json", exclude={"attempt", "spec"})
    facts = fields | {"spec": spec, "code": own_code.fingerprint(os.environ)}
    return digest(json.dumps(facts, sort_keys=True).encode())


def stored(run: Run, step: int, body: bytes, **proof: Any) -> Manifest:
    """Store the artifact and its manifest, once the final checkpoint is durable; `proof`: fields of this kind of run.

    Returns the manifest, already durable.
    """
    order, spec = run.order, run.order.spec
    checkpoint = run.durable()
    by = order.reward_policy if spec.data.rewards == "policy" else None
    manifest = Manifest(
        job=order.job,
        agent=order.agent,
        algorithm=spec.algorithm,
        environment=spec.data.world,
        seed=spec.seed,
        step=step,
        total_steps=spec.total_steps,
        world_size=run.group.place.size,
        attempts=order.attempt + 1,
        recipe_sha256=recipe_sha256(order),
        artifact_uri=run.store.put_artifact(body),
        artifact_sha256=digest(body),
        artifact_bytes=len(body),
        checkpoint_sha256=checkpoint,
        rewards=spec.data.rewards or "environment",
        reward_policy=None if by is None else by.name,
        reward_policy_revision=None if by is None else by.revision,
        wall_seconds=max(0.0, time.time() - run.began),
        versions=versions(),
        created_at=datetime.now(UTC),
        **proof,
    )
    run.store.put_manifest(manifest)
    return manifest


def versions() -> dict[str, str]:
    made = {"python": platform.python_version(), "torch": torch.__version__}
    for package in ("gymnasium", "numpy", "onnx", "onnxruntime", "tokenizers", "transformers"):
        try:
            made[package] = version(package)
        except PackageNotFoundError:  # Debian's packages bring no metadata
            made[package] = "unknown"
    made["learnloop"] = own_code.digest(Path(learnloop_trainer.__file__).parent.rglob("*.py"))[:12]
    code = own_code.fingerprint(os.environ)
    return made if code is None else made | {"environment": code}
