"""The quality of recall and consolidation on generated sets with known answers."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.memory.data import word
from testing.servers.data_plane_process import Product

API = "/api/v1/memory/"
FAMILIES, EACH, FORMS = 40, 12, 3


@dataclass(frozen=True)
class Family:
    """One kind of task: concepts, each with several words for it. An episode uses one of them at random."""

    name: str
    concepts: list[list[str]]

    def tell(self, rng: np.random.Generator, common: list[str], concepts: int, noise: int, usual: float = 0.8) -> str:
        """A description in words of its own choosing; `usual` is the probability of a concept's usual word."""
        chosen = rng.choice(len(self.concepts), concepts, replace=False)
        odds = [usual] + [(1 - usual) / (FORMS - 1)] * (FORMS - 1)
        own = [str(rng.choice(self.concepts[index], p=odds)) for index in chosen]
        return " ".join(rng.permutation(own + [str(rng.choice(common)) for _ in range(noise)]))


def families(rng: np.random.Generator, number: int = FAMILIES) -> tuple[list[Family], list[str]]:
    """Task families with 8 concepts each, a third of them shared with another family; and common words."""
    common = [word(rng) for _ in range(300)]
    shared = [[word(rng) for _ in range(FORMS)] for _ in range(number)]
    made = []
    for index in range(number):
        own = [[word(rng) for _ in range(FORMS)] for _ in range(6)]
        made.append(Family(f"task-{index}", own + [shared[index], shared[(index + 1) % number]]))
    return made, common


def precision(product: Product, seed: int = 11) -> dict[str, float]:
    """Precision@10 of recalling the 12 episodes of the task at hand among 480 of 40 tasks, text in, no feedback.

    Once with people's usual words four times in five, once with every synonym equally likely, where words alone
    cannot be enough: what an embedder with a model has to add.
    """
    shares = {}
    for name, usual in (("precision_at_10", 0.8), ("precision_at_10_any_synonym", 1 / FORMS)):
        rng = np.random.default_rng(seed)
        made, common = families(rng)
        stored = [(family.name, family.tell(rng, common, 6, 4, usual)) for family in made for _ in range(EACH)]
        rng.shuffle(stored)
        agent = f"bench-{name.replace('_', '-')}"
        of = _store(product, agent, [text for _, text in stored])
        belongs = {identity: task for identity, (task, _) in zip(of, stored, strict=True)}
        scores = []
        for _ in range(200):
            family = made[int(rng.integers(len(made)))]
            hits = _ask(product, agent, family.tell(rng, common, 5, 3, usual))["memories"]
            scores.append(np.mean([belongs[hit["id"]] == family.name for hit in hits]))
        shares[name] = round(float(np.mean(scores)), 4)
    return shares


def junk(product: Product, seed: int = 14) -> dict[str, float]:
    """300 memories, then the shapes of junk: 300 copies, 300 near copies, 100 echoes of recalls. What is left after?"""
    rng = np.random.default_rng(seed)
    agent = "bench-junk"
    made, common = families(rng, 60)
    real = [family.tell(rng, common, 7, 4) + f" case {number}" for number in range(5) for family in made]
    ids = set(_store(product, agent, real))
    _store(product, agent, [real[int(index)] for index in rng.integers(len(real), size=300)])
    _store(product, agent, [_reworded(real[int(index)], rng) for index in rng.integers(len(real), size=300)])
    for index in rng.integers(len(real), size=100):
        answer = _ask(product, agent, real[int(index)], k=1)
        shown = answer["memories"][0]["content"]["text"]
        _store(product, agent, [f"I recall that {shown} as noted"])
    stored = 1000
    product.post(API + "consolidate", {"agent_id": agent})
    left = {row["id"] for row in _entries(product, agent)}
    # Of a memory and its copies one has to stay; which of them does not matter.
    texts = {row["content"]["text"] for row in _entries(product, agent)}
    survivors = sum(any(_same(text, other) for other in texts) for text in real)
    return {
        "junk_stored": stored - len(ids),
        "junk_ratio_before": round(1 - len(ids) / stored, 4),
        "junk_ratio_after": round(max(len(left) - len(real), 0) / len(left), 4),
        "real_memories_lost": len(real) - survivors,
    }


def _reworded(text: str, rng: np.random.Generator) -> str:
    tokens = text.split()
    place = int(rng.integers(len(tokens) - 2))
    return " ".join([*tokens[:place], "the", *tokens[place:]]).capitalize() + "."


def _same(text: str, other: str) -> bool:
    return set(text.lower().split()) <= set(other.lower().strip(".").split())


def _store(product: Product, agent: str, texts: list[str], importance: list[float] | None = None) -> list[str]:
    worth = importance or [0.5] * len(texts)
    memories = [
        {"agent_id": agent, "memory_type": "semantic", "content": {"text": text}, "importance": value}
        for text, value in zip(texts, worth, strict=True)
    ]
    ids: list[str] = product.post(API + "store/batch", {"memories": memories})["ids"]
    return ids


def _ask(product: Product, agent: str, text: str, **changes: Any) -> Any:
    return product.post(API + "retrieve", {"agent_id": agent, "context": text, "k": 10} | changes)


def _entries(product: Product, agent: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    after = ""
    while True:
        answer = product.get(f"{API}entries?agent_id={agent}&limit=500{after}")
        entries += answer["memories"]
        if answer["next"] is None:
            return entries
        after = f"&after={answer['next']}"
