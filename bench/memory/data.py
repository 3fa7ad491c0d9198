"""Generated memories with topics of their own, and questions in the words of one of them."""

from dataclasses import dataclass

import numpy as np

SYLLABLES = [consonant + vowel for consonant in "bcdfghjklmnpqrstvwxyz" for vowel in "aeiou"]
TOPICS, TOPIC_WORDS, COMMON_WORDS = 20, 60, 2000


@dataclass(frozen=True)
class Agent:
    """One agent's memories and questions; `targets` is for each question the memory whose words it has."""

    name: str
    texts: list[str]
    questions: list[str]
    targets: list[int]


def generate(agents: int, memories: int, large: int, questions: int, seed: int) -> list[Agent]:
    """`agents` agents with `memories` each, and one with `large`."""
    rng = np.random.default_rng(seed)
    common = [word(rng) for _ in range(COMMON_WORDS)]
    sizes = [(f"agent-{index:03d}", memories) for index in range(agents)]
    sizes += [("agent-large", large)] if large else []
    return [_agent(name, size, questions, common, rng) for name, size in sizes]


def _agent(name: str, size: int, questions: int, common: list[str], rng: np.random.Generator) -> Agent:
    topics = [[word(rng) for _ in range(TOPIC_WORDS)] for _ in range(TOPICS)]
    texts = []
    for index in range(size):
        topic = topics[int(rng.integers(TOPICS))]
        own = [topic[place] for place in rng.zipf(1.3, 10).clip(1, TOPIC_WORDS) - 1]
        rest = [common[place] for place in rng.zipf(1.2, 5).clip(1, COMMON_WORDS) - 1]
        texts.append(" ".join([*own, *rest, f"n{index}"]))
    targets = [int(index) for index in rng.integers(size, size=questions)]
    words = [
        " ".join(rng.choice(texts[index].split()[:-1], 6)) + " " + common[int(rng.integers(COMMON_WORDS))]
        for index in targets
    ]
    return Agent(name, texts, words, targets)


def word(rng: np.random.Generator) -> str:
    """A pronounceable word."""
    return "".join(rng.choice(SYLLABLES, int(rng.integers(2, 5))))
