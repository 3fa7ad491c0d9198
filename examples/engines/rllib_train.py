"""Engine `image` by Ray RLlib: PPO on whatever discrete environment the order names.

Ray runs in this container alone. With a RayCluster next to it, set settings.address to ray://HEAD:10001.
"""

import io
import json
import os
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy
import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.columns import Columns

folder = Path(os.environ["LEARNLOOP_ENGINE_DIRECTORY"])


class Greedy(torch.nn.Module):
    """The policy as learnloop serves it: greedy action, and logits to draw from."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.module._forward_inference({Columns.OBS: observation})[Columns.ACTION_DIST_INPUTS]
        return logits.argmax(1), logits


def hand_in(name: str, body: bytes) -> None:
    """Write under another name first, so that half a file is never read."""
    (folder / f"{name}.new").write_bytes(body)
    (folder / f"{name}.new").rename(folder / name)


def packed(algorithm: Any) -> bytes:
    """RLlib's checkpoint, a folder, as one file."""
    body = io.BytesIO()
    with tempfile.TemporaryDirectory() as saved, tarfile.open(fileobj=body, mode="w") as archive:
        algorithm.save_to_path(saved)
        archive.add(saved, "saved")
    return body.getvalue()


def main() -> None:
    order = json.loads((folder / "order.json").read_text())
    settings = dict(order["settings"])
    ray.init(address=settings.pop("address", None), include_dashboard=False, log_to_driver=False)
    config = PPOConfig().environment(order["environment"]).debugging(seed=order["seed"])
    config = config.env_runners(num_env_runners=settings.pop("runners", 0)).training(**settings)
    algorithm, step = config.build_algo(), 0
    if (folder / "resume").exists():
        with tempfile.TemporaryDirectory() as saved:
            with tarfile.open(folder / "resume") as archive:
                archive.extractall(saved, filter="data")
            algorithm.restore_from_path(str(Path(saved) / "saved"))
    while step < order["total_steps"]:
        runners = algorithm.train()["env_runners"]
        step = int(runners["num_env_steps_sampled_lifetime"])
        mean = runners.get("episode_return_mean")
        returns = [float(mean)] if mean is not None and numpy.isfinite(mean) else []
        hand_in("checkpoint", packed(algorithm))
        hand_in("heartbeat.json", json.dumps({"step": step, "returns": returns}).encode())
    policy = Greedy(algorithm.get_module()).eval()
    names, file = ["observation", "action", "logits"], io.BytesIO()
    drawn = torch.randn(1000, order["observations"], generator=torch.Generator().manual_seed(order["seed"]))
    axes = {name: {0: "batch"} for name in names}
    with torch.no_grad():
        torch.onnx.export(
            policy, (drawn[:2],), file, input_names=names[:1], output_names=names[1:], dynamic_axes=axes, dynamo=False
        )
        outputs = policy(drawn)[1]
    hand_in("policy.onnx", file.getvalue())
    witness = {"observations": drawn.tolist(), "outputs": outputs.tolist()}
    behaviour = order["behaviour"] or {"kind": "sampled"}
    versions = {"ray": ray.__version__}
    result = {"step": step, "behaviour": behaviour, "witness": witness, "versions": versions}
    hand_in("result.json", json.dumps(result).encode())


if __name__ == "__main__":
    main()
