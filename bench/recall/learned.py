"""The learned ranker on the same conversations: taught by labels on half of them, asked about the other half.

One agent is given the first half's turns and is told, question by question, which of the memories shown were evidence.
What the service would then rank by (its learned weights once they are in use, the static ones until then) answers the
other half's questions, each conversation in an agent of its own; and the same with the halves exchanged. The weights of
a linear ranker carry over: they say how much each signal counts, not what any memory says.
"""

import sys
from collections.abc import Sequence

import numpy as np

from bench.recall.asked import RETRIEVE, Asked
from bench.recall.conversations import Conversation
from bench.recall.measures import MEASURES, table

FEEDBACK, RANKER = "/api/v1/memory/feedback", "/api/v1/memory/ranker"
K = 10


def measure(asked: Asked) -> dict[str, float]:
    """`learned.MEASURE` beside `static.MEASURE`, both over all questions, each asked of weights that never saw it."""
    conversations = asked.conversations
    if len(conversations) < 2:
        return {}
    middle = (len(conversations) + 1) // 2
    halves = conversations[:middle], conversations[middle:]
    static = asked.ask()
    tables = {"static": table(conversations, static), "learned": []}
    in_use = []
    for number, (taught, rest) in enumerate((halves, halves[::-1])):
        weights, active = _teach(asked, f"taught-{number}", taught)
        in_use.append(active)
        tables["learned"] += table(rest, asked.ask(weights, rest) if active else static)
    found = {
        f"{arm}.{name}": round(float(np.concatenate(rows)[:, place].mean()), 4)
        for arm, rows in tables.items()
        for place, name in enumerate(MEASURES)
    }
    return found | {"learned.in_use": float(np.mean(in_use))}


def _teach(asked: Asked, agent: str, conversations: Sequence[Conversation]) -> tuple[dict[str, float], bool]:
    """The agent's weights after one label for each question, and whether they are in use."""
    product = asked.product
    labels = sum(len(each.questions) for each in conversations)
    print(f"  teaching a ranker by {labels} labels …", file=sys.stderr, flush=True)
    for conversation in conversations:
        turn_of = asked.store(agent, conversation)
        for question in conversation.questions:
            answer = product.post(RETRIEVE, {"agent_id": agent, "context": question.text, "k": K})
            shown = [hit["id"] for hit in answer["memories"]]
            helpful = [identity for identity in shown if turn_of.get(identity) in question.evidence]
            product.post(FEEDBACK, {"retrieval_id": answer["retrieval_id"], "helpful": helpful})
    ranker = product.get(f"{RANKER}?agent_id={agent}")
    return ranker["weights"], ranker["ranker"] == "learned"
