"""The learned ranker on the same conversations: taught by labels on some of them, asked about the others.

One agent is given the turns of the conversations that teach and is told, question by question, which of the memories
shown were evidence. What the service would then rank by (its learned weights once they are in use, the static ones
until then) answers the other conversations' questions, each conversation in an agent of its own. The weights of a
linear ranker carry over: they say how much each signal counts, not what any memory says.
"""

import sys
from collections.abc import Mapping, Sequence

import numpy as np

from bench.recall.asked import Asked
from bench.recall.conversations import Conversation, split
from bench.recall.measures import MEASURES, table

FEEDBACK, RANKER = "/api/v1/memory/feedback", "/api/v1/memory/ranker"
K = 10


def measure(asked: Asked, static: Mapping[str, Sequence[Sequence[str]]]) -> dict[str, float]:
    """`learned.MEASURE` beside `learned.static.MEASURE`, over the questions of the conversations that did not teach.

    Args:
        static: the orders of the static weights.
    """
    taught, rest = split(asked.conversations)
    if not taught or not rest:
        return {}
    weights, active, evidence = _teach(asked, "taught", taught)
    found = {"learned.in_use": float(active), "learned.evidence": evidence}
    orders = {"learned.static": static, "learned": asked.ask(weights, rest) if active else static}
    shadow = asked.ask(weights, rest)
    for arm, ranked in (orders | {"learned.shadow": shadow}).items():
        rows = np.concatenate(table(rest, ranked))
        found |= {f"{arm}.{name}": round(float(rows[:, place].mean()), 4) for place, name in enumerate(MEASURES)}
    return found | {f"learned.weight.{name}": weight for name, weight in weights.items()}


def _teach(asked: Asked, agent: str, conversations: Sequence[Conversation]) -> tuple[dict[str, float], bool, float]:
    """The agent's weights after one label for each question, whether they are in use, and the evidence for them."""
    product = asked.product
    labels = sum(len(each.questions) for each in conversations)
    print(f"  teaching a ranker by {labels} labels …", file=sys.stderr, flush=True)
    for conversation in conversations:
        turn_of = asked.store(agent, conversation)
        asked.settle()
        for question in conversation.questions:
            [answer] = asked.retrieve([{"agent_id": agent, "context": question.text, "k": K}])
            shown = [hit["id"] for hit in answer["memories"]]
            helpful = [identity for identity in shown if turn_of.get(identity) in question.evidence]
            product.post(FEEDBACK, {"retrieval_id": answer["retrieval_id"], "helpful": helpful})
    ranker = product.get(f"{RANKER}?agent_id={agent}")
    return ranker["weights"], ranker["ranker"] == "learned", ranker["evidence"]
