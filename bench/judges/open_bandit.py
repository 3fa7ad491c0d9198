"""Open Bandit Data: the off-policy gate estimates each of two real policies from the other one's log.

Saito et al., 2021, arXiv 2008.07146: clicks on a shop's recommendations by a uniform policy and by Bernoulli Thompson
sampling, two campaigns, 10,000 rows each. A row is an episode of one step: user, place on the page, item, click. Truth
is the target's own mean click rate. The data's own library, obp, estimates the same.

Halves of one log depend on one another, and four logs are few. So as many logs are drawn, each independently: the
place and user of a row, an item by the policy's own probability, and a click by the share of clicks on that item at
that place in both logs. There the truth is a sum, without an error of its own.
"""

import csv
import multiprocessing
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray

from bench.arguments import numbers
from bench.judges.cases import Suite, finish
from bench.judges.documents import Documents
from learnloop_environments.spaces import ActionSpace, Observations
from learnloop_trainer.evaluation.fitted_q import LoggedSteps
from learnloop_trainer.evaluation.off_policy import Estimate, evaluate
from learnloop_trainer.recordings import Mixture, Recording

DATA = Documents(
    "st-tech/zr-obp",
    "8cbd5fa4558b7ad2ba4781546d6604e4cc3e07c4",
    {
        "obd/random/men/men.csv": "ede6d08c6877f99cd3770f7d09e26c738e6aa6de4445ccccfb1356ba5d06b1eb",
        "obd/random/women/women.csv": "e65f3bd3beb17664fa69cc129bf7bf852a775f8ffa630506e505fc905315bb34",
        "obd/bts/men/men.csv": "db6d1f7ed2d591ba521533e45286d4c1fba7fe57a8ad2e80342210335f43c527",
        "obd/bts/women/women.csv": "e5d1b49a39b608585a2f3014a3f54970430cd37a495c1b73fceb85cdf428a5b8",
        "obp/policy/conf/prior_bts.yaml": "81a54fbdc184021ccc62ab97de81ec35461c032e3d7f99ccaa0a9745f732d251",
    },
)
POSITIONS = 3
USER = [f"user_feature_{number}" for number in range(4)]
DRAWS = 100_000
PEER, PEER_OVERRIDES = "obp==0.5.7", Path(__file__).with_name("obp-overrides.txt")
"""It pins torch 1.12, which has no wheels for today's Python: the overrides let it have newer ones."""
Floats = NDArray[np.float64]
Part = dict[str, float]


@dataclass(frozen=True, slots=True)
class ByPosition:
    """A policy whose probabilities [positions, items] depend on the place on the page alone."""

    probability: Floats

    def log_probability(self, observation: Observations, action: NDArray[Any]) -> Floats:
        return np.asarray(np.log(self.probability[self._rows(observation), action]))

    def mixture(self, observation: Observations) -> Mixture:
        items = np.arange(self.probability.shape[1], dtype=np.int64)
        return Mixture(np.tile(items, (len(observation), 1)), self.probability[self._rows(observation)])

    @staticmethod
    def _rows(observation: Observations) -> NDArray[np.int64]:
        return np.asarray(np.asarray(observation)[:, :POSITIONS].argmax(axis=1))


@dataclass(frozen=True, slots=True)
class Log:
    observation: NDArray[np.float32]
    action: NDArray[np.int64]
    click: NDArray[np.float32]
    propensity: NDArray[np.float32]

    def steps(self, rows: NDArray[np.int64]) -> LoggedSteps:
        ends = np.ones(len(rows), dtype=np.bool_)
        log_prob = np.log(self.propensity[rows])
        return LoggedSteps.of(
            Recording(self.observation[rows], self.action[rows], self.click[rows], log_prob, ends, ends)
        )


def logs(folder: Path, campaign: str) -> dict[str, Log]:
    """The logs of both policies, users' features as one of each kind that either log has."""
    tables = {policy: _rows(folder / "obd" / policy / campaign / f"{campaign}.csv") for policy in ("random", "bts")}
    kinds = [(key, value) for key in USER for value in sorted({row[key] for table in tables.values() for row in table})]
    column = {kind: POSITIONS + number for number, kind in enumerate(kinds)}
    return {policy: _log(table, column) for policy, table in tables.items()}


def policies(folder: Path, campaign: str, seed: int) -> dict[str, ByPosition]:
    """The uniform policy, and Thompson sampling by the parameters that it had in production."""
    written = (folder / "obp" / "policy" / "conf" / "prior_bts.yaml").read_text(encoding="utf-8")
    prior = yaml.safe_load(written)[campaign]
    alpha, beta = np.asarray(prior["alpha"]), np.asarray(prior["beta"])
    drawn = np.random.default_rng(seed).beta(alpha, beta, (DRAWS, len(alpha)))
    best = np.argsort(-drawn, axis=1)[:, :POSITIONS]
    counted = np.stack([np.bincount(best[:, place], minlength=len(alpha)) for place in range(POSITIONS)])
    often = np.maximum(counted, 0.5)  # an item that was never drawn is rare, not impossible
    return {
        "random": ByPosition(np.full(counted.shape, 1 / len(alpha))),
        "bts": ByPosition(often / often.sum(axis=1, keepdims=True)),
    }


def main() -> int:
    """A line for each campaign and target; 1 when a goal is missed."""
    resamples = numbers(__doc__, sys.argv[1:], resamples=50).resamples
    suite, folder = Suite("Open Bandit Data", DATA.version), DATA.folder()
    drawn, parts, drawn_parts = Suite("Open Bandit Data, drawn logs", DATA.version), list[Part](), list[Part]()
    # Spawned, not forked: torch's threads do not survive a fork.
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        for campaign in ("men", "women"):
            both, acting = logs(folder, campaign), policies(folder, campaign, 1)
            rates = _rates(both, acting["random"].probability.shape)
            for target, logged in (("bts", "random"), ("random", "bts")):
                name, halves = f"{campaign}: {target} from {logged}", partial(_estimate, acting[target], both[logged])
                truths = [float(both[policy].click.mean()) for policy in (target, logged)]
                parts.append(_judge(suite, name, list(pool.map(halves, range(resamples))), *truths))
                draw = partial(_estimate_drawn, acting[target], acting[logged], rates, both[logged])
                places = both[logged].observation[:, :POSITIONS].mean(axis=0)
                truths = [float(places @ (acting[it].probability * rates).sum(axis=1)) for it in (target, logged)]
                drawn_parts.append(_judge(drawn, f"{name}, drawn", list(pool.map(draw, range(resamples))), *truths))
                _peer(acting[target], both[logged], parts[-1]["truth"], resamples)
    for each, of in ((suite, parts), (drawn, drawn_parts)):
        for figure, least in (("covered", 0.95), ("verdicts", 0.5)):
            if (share := sum(part[figure] for part in of) / len(of)) < least:
                each.fails(f"{figure}: {share:.3f}, expected {least} or more")
    return finish(suite, drawn)


def _estimate(target: ByPosition, log: Log, seed: int) -> Estimate:
    """One resample: half of the log, drawn without replacement, proves, the other half fits.

    A row that is in both would prove what the model has learned from it: no run keeps an episode for both.
    """
    space, device = ActionSpace(target.probability.shape[1]), torch.device("cpu")
    drawn = np.random.default_rng(seed).permutation(len(log.action))
    proof, others = (log.steps(half) for half in np.array_split(drawn, 2))
    return evaluate(target, proof, others, space, 1.0, seed, device)


def _estimate_drawn(target: ByPosition, acting: ByPosition, rates: Floats, log: Log, seed: int) -> Estimate:
    """The estimate from a log of as many rows that the acting policy makes in a world of these click rates."""
    random = np.random.default_rng(seed)
    observation = log.observation[random.integers(len(log.action), size=len(log.action))]
    place = observation[:, :POSITIONS].argmax(axis=1)
    action = np.empty(len(place), dtype=np.int64)
    for number, probability in enumerate(acting.probability):
        rows = place == number
        action[rows] = random.choice(len(probability), size=rows.sum(), p=probability)
    click = (random.random(len(place)) < rates[place, action]).astype(np.float32)
    propensity = acting.probability[place, action].astype(np.float32)
    return _estimate(target, Log(observation, action, click, propensity), seed)


def _rates(both: dict[str, Log], shape: tuple[int, ...]) -> Floats:
    """Shares of clicks [positions, items] in both logs; 0 where no row is."""
    clicks, rows = np.zeros(shape), np.zeros(shape)
    for log in both.values():
        cell = log.observation[:, :POSITIONS].argmax(axis=1), log.action
        np.add.at(rows, cell, 1.0)
        np.add.at(clicks, cell, log.click)
    return np.asarray(clicks / np.maximum(rows, 1.0))


def _peer(target: ByPosition, log: Log, truth: float, resamples: int) -> None:
    """Print how often obp's intervals cover the truth."""
    made = [str(Path(__file__).parents[1] / "peer_venv"), sys.executable, "judges-open-bandit", PEER]
    made += ["--override", str(PEER_OVERRIDES)]
    python = subprocess.run(made, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        np.savez(
            file := f"{folder}/log.npz",
            action=log.action,
            position=log.observation[:, :POSITIONS].argmax(axis=1),
            click=log.click.astype(np.int64),
            propensity=log.propensity.astype(np.float64),
            context=log.observation[:, POSITIONS:],
            probability=target.probability,
            truth=truth,
        )
        program = str(Path(__file__).with_name("open_bandit_peer.py"))
        subprocess.run([python, program, file, str(resamples)], check=True, stdout=sys.stderr, timeout=600)


def _judge(suite: Suite, name: str, results: list[Estimate], truth: float, logged: float) -> Part:
    part = _part(results, truth, logged)
    suite.cases += len(results)
    print(name, part, file=sys.stderr, flush=True)
    if part["worse_promotions"]:
        suite.fails(f"{name}: the log promotes a policy that is worse: {part}")
    return part


def _part(results: list[Estimate], truth: float, logged: float) -> Part:
    """Shares of resamples whose interval covers the truth, and that got a verdict; and how often worse would win."""
    judged = [result.corrected for result in results if result.verdict and result.corrected is not None]
    return {
        "truth": truth,
        "mean_estimate": float(np.mean([one.value for one in judged])) if judged else float("nan"),
        "mean_width": float(np.mean([one.high - one.low for one in judged])) if judged else float("nan"),
        "covered": sum(one.low <= truth <= one.high for one in judged) / max(1, len(judged)),
        "verdicts": len(judged) / len(results),
        "worse_promotions": sum(one.gain_low > 0 for one in judged) if truth < logged else 0,
    }


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _log(table: list[dict[str, str]], column: dict[tuple[str, str], int]) -> Log:
    observation = np.zeros((len(table), POSITIONS + len(column)), dtype=np.float32)
    for number, row in enumerate(table):
        observation[number, int(row["position"]) - 1] = 1
        observation[number, [column[key, row[key]] for key in USER]] = 1
    read = {key: np.asarray([float(row[key]) for row in table]) for key in ("item_id", "click", "propensity_score")}
    return Log(
        observation,
        read["item_id"].astype(np.int64),
        read["click"].astype(np.float32),
        read["propensity_score"].astype(np.float32),
    )


if __name__ == "__main__":
    sys.exit(main())
