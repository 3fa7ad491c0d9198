"""`make bench-language`: three algorithms teach a model of 118,000 parameters to use tools; the last line is JSON.

The model is made from nothing: it imitates demonstrations of which two thirds err. Each case learns with five seeds on
one thread; success is that on 256 held-out tasks, as sampled and with the likeliest answers, before and after. Seconds
are the processor's, of learning alone. Losses and their gradients are compared with float64 references by
tests/unit/trainer/language/test_losses.py.

Each case of GRPO is done by TRL, too: the same model, tasks, world, hyperparameters and thread, with peft and the
library's own sampling and learning. `--alone` leaves it out.
"""

import json
import statistics
import tempfile
import time
from pathlib import Path

import torch

from bench.arguments import parser
from bench.language import peer
from bench.language.cases import BARS, CASES
from bench.language.tiny_runs import Outcome, TinyRun
from learnloop_environments.conversations.tool_lookup import ToolLookup
from testing.language.tiny_model import make

SEEDS = 5
FASTER, LOWER = 1.5, 0.05
"""Against the peer: tokens by processor second, and the permitted loss of success: the resolution of 256 tasks."""


def passed(name: str, outcome: Outcome) -> bool:
    """Does this run reach its bars?"""
    gain, seconds = BARS[CASES[name].algorithm]
    return outcome.gain >= gain and outcome.greedy_gain >= -0.05 and outcome.cpu_seconds <= seconds


def summary(name: str, outcomes: list[Outcome]) -> dict[str, object]:
    """A case over its seeds."""

    def mean(values: list[float]) -> float:
        return round(statistics.fmean(values), 4)

    gain, seconds = BARS[CASES[name].algorithm]
    return {
        "sampled": [mean([one.sampled[at] for one in outcomes]) for at in (0, 1)],
        "greedy": [mean([one.greedy[at] for one in outcomes]) for at in (0, 1)],
        "least_gain": round(min(one.gain for one in outcomes), 4),
        "least_greedy_gain": round(min(one.greedy_gain for one in outcomes), 4),
        "cpu_seconds": mean([one.cpu_seconds for one in outcomes]),
        "tokens_per_cpu_second": mean([one.tokens_per_second for one in outcomes]),
        "bar": {"gain": gain, "cpu_seconds": seconds},
        "passed": f"{sum(passed(name, one) for one in outcomes)}/{len(outcomes)}",
    }


def tell(what: str, one: Outcome, more: str = "") -> None:
    """A line about a run."""
    print(
        f"{what}: sampled {one.sampled[0]:.2f} → {one.sampled[1]:.2f}, greedy {one.greedy[0]:.2f} → "
        f"{one.greedy[1]:.2f}, {one.cpu_seconds:.1f} s, {one.tokens_per_second:.0f} tokens/s{more}",
        flush=True,
    )


def against(ours: list[Outcome], peers: list[Outcome]) -> dict[str, object]:
    """The peer's runs, and how the product compares with them seed by seed."""
    pairs = list(zip(ours, peers, strict=True))
    speed = statistics.median(our.tokens_per_second / their.tokens_per_second for our, their in pairs)
    success = statistics.fmean(our.sampled[1] - their.sampled[1] for our, their in pairs)
    return {
        "name": peer.NAME,
        "sampled": round(statistics.fmean(their.sampled[1] for their in peers), 4),
        "greedy": round(statistics.fmean(their.greedy[1] for their in peers), 4),
        "cpu_seconds": round(statistics.fmean(their.cpu_seconds for their in peers), 1),
        "tokens_per_cpu_second": round(statistics.fmean(their.tokens_per_second for their in peers)),
        "tokens_ratio": round(speed, 2),
        "success_difference": round(success, 4),
        "bar": {"tokens_ratio": FASTER, "success_difference": -LOWER},
        "passed": speed >= FASTER and success >= -LOWER,
    }


def main() -> None:
    """Print a line for each run and for each case, then everything as one JSON object."""
    options = parser(__doc__)
    options.add_argument("seeds", type=int, nargs="?", default=SEEDS, help=f"of each case; left out: {SEEDS}")
    options.add_argument("case", nargs="*", help=f"left out: {', '.join(CASES)}")
    options.add_argument("--alone", action="store_true", help="do not run the peer")
    chosen = options.parse_args()
    if unknown := set(chosen.case) - set(CASES):
        options.error(f"case {min(unknown)!r} is unknown; take one of {', '.join(CASES)}")
    names = chosen.case or list(CASES)
    python = None if chosen.alone or not any(CASES[name].algorithm == "grpo" for name in names) else peer.environment()
    torch.set_num_threads(1)
    began = time.process_time()
    figures: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="bench-language-") as folder:
        make(Path(folder), ToolLookup())
        made = time.process_time() - began
        print(f"a model of 118,000 parameters, made in {made:.0f} processor seconds", flush=True)
        for name in names:
            outcomes, peers = list[Outcome](), list[Outcome]()
            for seed in range(chosen.seeds):
                outcomes.append(one := TinyRun(Path(folder), CASES[name], seed).learned())
                tell(f"{name} seed {seed}", one, "" if passed(name, one) else ", below its bar")
                if python is not None and CASES[name].algorithm == "grpo":
                    peers.append(one := peer.learned(python, Path(folder), CASES[name], seed, one))
                    tell(f"{name} seed {seed} by {peer.NAME}", one)
            figures[name] = summary(name, outcomes) | ({"peer": against(outcomes, peers)} if peers else {})
    whole = {"seeds": chosen.seeds, "base_cpu_seconds": round(made, 1), "cases": figures}
    print(json.dumps(whole | {"cpu_seconds": round(time.process_time() - began, 1)}))


if __name__ == "__main__":
    main()
