"""bsuite's experiments with learnloop's DQN, judged by bsuite's own scores: 0 is a random agent, 1 a perfect one."""

import importlib
import os
import subprocess
import sys
import tempfile
from importlib.metadata import distributions
from pathlib import Path

from bench.judges.cases import Suite, finish

ROOT = Path(__file__).parents[2]
PACKAGE, VERSION = "judges-bsuite", "0.3.6"
WORLD = "bench.judges.bsuite_world:World"
LEAST = {"bandit/0": (1, 0.5)}
"""By identity: steps of an episode, and the least score."""


def main() -> int:
    """1 when a score is below its least."""
    made = [str(ROOT / "bench" / "peer_venv"), sys.executable, PACKAGE, f"bsuite=={VERSION}"]
    python = Path(subprocess.run(made, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())
    [packages] = python.parents[1].glob("lib/*/site-packages")
    sys.path.append(str(packages))  # last: all that this environment has, and bsuite of that one
    [peer] = distributions(name="bsuite", path=[str(packages)])
    suite = Suite("bsuite, scores of DQN", peer.version)
    for identity, (length, least) in LEAST.items():
        with suite.case(identity), tempfile.TemporaryDirectory() as folder:
            score = _score(identity, length, folder)
            print(f"bsuite: {identity}: {score:.3f}", file=sys.stderr, flush=True)
            assert score >= least, f"{score:.3f} is below {least}"
    return finish(suite)


def _score(identity: str, length: int, folder: str) -> float:
    """Of DQN with its defaults and one environment, over as many episodes as bsuite asks for."""
    import torch
    from bsuite import sweep
    from bsuite.logging import csv_load

    from learnloop_api.kinds.training.algorithms import hyperparameters
    from learnloop_environments import make
    from learnloop_environments.randomness import Split
    from learnloop_trainer.algorithms import Occasion, learner
    from learnloop_trainer.distributed import Alone

    os.environ |= {"BSUITE_ID": identity, "BSUITE_FOLDER": folder}
    parameters, episodes = hyperparameters("dqn", environments=1), sweep.EPISODES[identity]
    environment, ended, steps = make(WORLD, Split.TRAINING, 0, range(1)), 0, episodes * length
    algorithm = learner(parameters, environment, Occasion(0, steps, 1, Alone()), torch.device("cpu"))
    observation = environment.reset()
    while ended < episodes:
        observation, experiences = algorithm.iterate(observation)
        ended += sum(int(experience.ended.sum()) for experience in experiences)
    environment.close()
    frame, _ = csv_load.load_bsuite(folder)
    analysis = importlib.import_module(f"bsuite.experiments.{identity.split('/')[0]}.analysis")
    return float(analysis.score(frame[frame.bsuite_id == identity]))


if __name__ == "__main__":
    sys.exit(main())
