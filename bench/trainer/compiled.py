"""Whether torch.compile pays on processors: one update of PPO's networks, eager and compiled.

    python -m bench.trainer.compiled

Seconds until the first update is done, processor milliseconds of each one after, and after how many the compilation has
paid for itself. Inductor begins with an empty cache, as in a new pod, and needs a C++ compiler. The last line is JSON.
"""

import json
import os
import platform
import resource
import tempfile
import time
from collections.abc import Callable

import torch

from learnloop_trainer.neural.dense_networks import Network, dense, forward, side_by_side

WIDTH, BATCH, OBSERVATIONS, ACTIONS = 64, 256, 8, 4
WARM, MEASURED = 20, 400

Loss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def cpu_seconds() -> float:
    """Of this process and of the compilers that it started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def loss_of(network: Network) -> Loss:
    """PPO's clipped loss with a value function and an entropy bonus."""

    def loss(
        seen: torch.Tensor, action: torch.Tensor, gain: torch.Tensor, before: torch.Tensor, wanted: torch.Tensor
    ) -> torch.Tensor:
        said = torch.log_softmax(forward(network.leaves, "actor", "tanh", seen), 1)
        ratio = (said.gather(1, action[:, None]).squeeze(1) - before).exp()
        policy = -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
        value = forward(network.leaves, "critic", "tanh", seen).squeeze(1)
        entropy = -(said.exp() * said).sum(1).mean()
        return policy + 0.5 * (value - wanted).square().mean() - 0.01 * entropy

    return loss


def measured(compiled: bool) -> tuple[float, float, float]:
    """Seconds and processor seconds until the first update is done, processor milliseconds of a later one."""
    actor = dense("actor", [OBSERVATIONS, WIDTH, WIDTH, ACTIONS], 0.01, 0, 1)
    critic = dense("critic", [OBSERVATIONS, WIDTH, WIDTH, 1], 1.0, 0, 2)
    network = Network(side_by_side(actor, critic), torch.device("cpu"))
    loss = torch.compile(loss_of(network)) if compiled else loss_of(network)
    batch = (
        torch.randn(BATCH, OBSERVATIONS),
        torch.randint(0, ACTIONS, (BATCH,)),
        torch.randn(BATCH),
        torch.full((BATCH,), -1.4),
        torch.randn(BATCH),
    )

    def update() -> None:
        loss(*batch).backward()  # type: ignore[no-untyped-call]
        network.adam(3e-4, 0.5)

    began, used = time.monotonic(), cpu_seconds()
    update()
    first, first_cpu = time.monotonic() - began, cpu_seconds() - used
    for _ in range(WARM):
        update()
    used = cpu_seconds()
    for _ in range(MEASURED):
        update()
    return first, first_cpu, (cpu_seconds() - used) / MEASURED * 1000


def main() -> dict[str, object]:
    """What the last line says."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        _, _, eager = measured(compiled=False)
        first, first_cpu, later = measured(compiled=True)
    gained = eager - later
    return {
        "eager_cpu_ms": round(eager, 3),
        "compiled_cpu_ms": round(later, 3),
        "ratio": round(eager / later, 2),
        "compiled_first_s": round(first, 1),
        "compiled_first_cpu_s": round(first_cpu, 1),
        "updates_until_it_pays": round(first_cpu * 1000 / gained) if gained > 0 else None,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


if __name__ == "__main__":
    print(json.dumps(main()))
