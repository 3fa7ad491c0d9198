"""The same log learned from by d3rlpy; prints one JSON object. Started by the bench with the peer's own python."""

import json
import logging
import sys
import time

import d3rlpy
import numpy as np
import torch

from bench.offline.tasks import BATCH, HIDDEN, RATE, TASKS, played


def main(number: int, file: str, seed: int, episodes: int) -> None:
    """Learn and play."""
    torch.set_num_threads(1)
    d3rlpy.seed(seed)
    task, log = TASKS[number], np.load(file)
    discrete = log["action"].ndim == 1
    data = d3rlpy.dataset.MDPDataset(
        log["observation"].astype(np.float32),
        log["action"].reshape(len(log["action"]), -1),
        log["reward"].astype(np.float32),
        log["terminated"].astype(np.float32),
        (log["last"] & ~log["terminated"]).astype(np.float32),
        action_space=d3rlpy.ActionSpace.DISCRETE if discrete else d3rlpy.ActionSpace.CONTINUOUS,
        action_size=2 if discrete else log["action"].shape[1],
    )
    encoder = d3rlpy.models.VectorEncoderFactory(hidden_units=HIDDEN)
    roles = ("",) if discrete else ("actor_", "critic_", *(("value_",) if task.peer == "IQL" else ()))
    options = {f"{role}encoder_factory": encoder for role in roles} | dict(task.theirs)
    options |= {"learning_rate": RATE} if discrete else {}
    config = getattr(d3rlpy.algos, f"{task.peer}Config")(batch_size=BATCH, gamma=task.discount, **options)
    learner, began = config.create(device="cpu:0"), time.perf_counter()
    quiet = d3rlpy.logging.NoopAdapterFactory()
    learner.fit(data, n_steps=task.updates, n_steps_per_epoch=task.updates, logger_adapter=quiet, show_progress=False)
    seconds = time.perf_counter() - began
    mean = played(task.environment, lambda seen: learner.predict(seen.astype(np.float32)), episodes, seed)
    print(json.dumps({"return": mean, "seconds": seconds}))


if __name__ == "__main__":
    logging.disable()
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
