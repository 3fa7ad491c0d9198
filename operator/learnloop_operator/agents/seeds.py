"""What makes every run of an agent another one: its seed, and the held-out episodes that prove it.

Seeds of an agent's runs follow one another from a start of the agent's own, and the numbers of their held-out episodes
lie EPISODES_PER_RUN apart under one seed. So for one agent both differ by construction, not by luck.
"""

import hashlib

from learnloop_api.kinds.training.evaluation import EPISODES_PER_RUN
from learnloop_api.kinds.training_job import TrainingTemplate
from learnloop_operator.core.plan import Manifest

SEEDS = 2**31


def of_run(uid: str, number: int) -> int:
    """The seed of run `number` of the agent with this UID: from 0 to SEEDS - 1."""
    return (_start(uid, "training") + number) % SEEDS


def seeded(template: TrainingTemplate, uid: str, number: int) -> Manifest:
    """The template of run `number` with all seeds set; those that the user set stay."""
    evaluation = template.evaluation
    chosen = {
        "seed": _start(uid, "held-out") if evaluation.seed is None else evaluation.seed,
        "first_episode": number * EPISODES_PER_RUN if evaluation.first_episode is None else evaluation.first_episode,
    }
    seed = of_run(uid, number) if template.seed is None else template.seed
    return template.model_copy(update={"seed": seed, "evaluation": evaluation.model_copy(update=chosen)}).to_kube()


def _start(uid: str, purpose: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{purpose} {uid}".encode()).digest()[:4]) % SEEDS
