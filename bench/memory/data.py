"""What all arms hold and are asked: agents' memories with topics of their own, and questions in a memory's words."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learnloop_dataplane.embedding.embedder import HashingEmbedder
from learnloop_dataplane.text.analysis import Analyzer

terms = Analyzer().terms

SYLLABLES = [consonant + vowel for consonant in "bcdfghjklmnpqrstvwxyz" for vowel in "aeiou"]
TOPICS, TOPIC_WORDS, COMMON_WORDS = 20, 60, 2000


@dataclass(frozen=True)
class Agent:
    """One agent's memories and questions; `matrix` is float32 [memories, 384], `asked` float32 [questions, 384]."""

    name: str
    texts: list[str]
    questions: list[str]
    matrix: NDArray[np.float32]
    asked: NDArray[np.float32]

    def nearest(self, question: int, k: int = 10) -> NDArray[np.intp]:
        """The exact answer: brute force in float32."""
        score = self.matrix @ self.asked[question]
        return np.argsort(-score, kind="stable")[:k]


def generate(agents: int, memories: int, large: int, questions: int, seed: int) -> list[Agent]:
    """`agents` agents with `memories` each, and one with `large`."""
    rng = np.random.default_rng(seed)
    embedder = HashingEmbedder()
    common = [word(rng) for _ in range(COMMON_WORDS)]
    sizes = [(f"agent-{index:03d}", memories) for index in range(agents)]
    sizes += [("agent-large", large)] if large else []
    return [_agent(name, size, questions, common, rng, embedder) for name, size in sizes]


def _agent(
    name: str, size: int, questions: int, common: list[str], rng: np.random.Generator, embedder: HashingEmbedder
) -> Agent:
    topics = [[word(rng) for _ in range(TOPIC_WORDS)] for _ in range(TOPICS)]
    texts = []
    for index in range(size):
        topic = topics[int(rng.integers(TOPICS))]
        own = [topic[place] for place in rng.zipf(1.3, 10).clip(1, TOPIC_WORDS) - 1]
        rest = [common[place] for place in rng.zipf(1.2, 5).clip(1, COMMON_WORDS) - 1]
        texts.append(" ".join([*own, *rest, f"n{index}"]))
    asked = []
    for index in rng.integers(size, size=questions):
        tokens = texts[index].split()
        asked.append(" ".join(rng.choice(tokens[:-1], 6)) + " " + common[int(rng.integers(COMMON_WORDS))])
    vectors = [np.stack([embedder.vector(terms(text)) for text in many]) for many in (texts, asked)]
    return Agent(name, texts, asked, *vectors)


def word(rng: np.random.Generator) -> str:
    """A pronounceable word."""
    return "".join(rng.choice(SYLLABLES, int(rng.integers(2, 5))))
