"""`make bench-gpu`: learning on this machine's GPU, on its processors, and with the peers; the last line is JSON.

PPO and SAC with narrow and wide networks, against Stable-Baselines3, each on the GPU and on the processors: the same
environments, steps, updates and batches on every side. Then rounds of GRPO on a language model of 135 million
parameters with random weights, against TRL. The GPU's runs follow one another, with half of the processors; those
without it run at the same time on the other half. Without a GPU the line says `skipped`.
"""

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from bench.arguments import parser
from bench.gpu import language, networks
from bench.gpu.lanes import Lane, Outcome, lanes

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Print a line for each side and device, then everything as one JSON object."""
    options = parser(__doc__)
    options.add_argument("--only", choices=("networks", "language"), help="one part; both where left out")
    options.add_argument("--peers", default="", help="a python with the peers; left out, environments made for them")
    chosen = options.parse_args()
    if not torch.cuda.is_available():
        print(json.dumps({"skipped": f"torch {torch.__version__} finds no GPU here"}))
        return
    pythons = {"ours": sys.executable}
    pythons |= {side: chosen.peers or _environment(bench) for side, bench in (("sb3", "trainer"), ("trl", "language"))}
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="bench-gpu-") as root:
        base = Path(root) / "base"
        if chosen.only != "networks":
            language.make_base(base)

        def work(lane: Lane) -> Outcome:
            outcome: Outcome = {}
            if chosen.only != "language":
                outcome["networks"] = networks.measured(lane, pythons)
            if chosen.only != "networks":
                outcome["language"] = language.measured(lane, base, pythons)
            return outcome

        with ThreadPoolExecutor(2) as pool:
            sides = {lane.device: pool.submit(work, lane) for lane in lanes(cores)}
            outcome = {device: side.result() for device, side in sides.items()}
    machine = {"gpu": torch.cuda.get_device_name(), "cores": len(cores), "torch": torch.__version__}
    print(json.dumps(machine | outcome))


def _environment(bench: str) -> str:
    command = [str(HERE.parent / bench / "peer_venv"), sys.executable]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


if __name__ == "__main__":
    main()
