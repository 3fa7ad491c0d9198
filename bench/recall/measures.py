"""The field's measures of a ranking against evidence, their means, and how far those may be off. Pure."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from bench.recall.conversations import Conversation, Question, was_tuned_on

K = 10
MEASURES = ("r@5", "r@10", "hit@10", "ndcg@10", "session_r@10")
SAMPLES = 1000
Rankings = Mapping[str, Sequence[Sequence[str]]]  # of each conversation's questions in their order


def measure(order: Sequence[str], question: Question, session_of: Mapping[str, str]) -> tuple[float, ...]:
    """MEASURES of one ranking.

    Recall is the share of the evidence among the first k; hit, whether any of it is; nDCG is binary; the session's
    recall is the share of the sessions with evidence that have any turn, the right one or not, among the first ten.
    """
    top, evidence = order[:K], question.evidence
    places = [place for place, turn in enumerate(top) if turn in evidence]
    gain = sum(1 / math.log2(place + 2) for place in places)
    ideal = sum(1 / math.log2(place + 2) for place in range(min(len(evidence), K)))
    sessions = {session_of[turn] for turn in evidence}
    return (
        sum(place < 5 for place in places) / len(evidence),
        len(places) / len(evidence),
        float(bool(places)),
        gain / ideal,
        len(sessions & {session_of.get(turn) for turn in top}) / len(sessions),
    )


def table(conversations: Sequence[Conversation], rankings: Rankings) -> list[NDArray[np.float64]]:
    """One array [questions, MEASURES] for each conversation."""
    tables = []
    for conversation in conversations:
        session_of = {turn.id: turn.session for turn in conversation.turns}
        orders = rankings[conversation.name]
        rows = [
            measure(order, question, session_of) for order, question in zip(orders, conversation.questions, strict=True)
        ]
        tables.append(np.array(rows, np.float64).reshape(-1, len(MEASURES)))
    return tables


def interval(tables: Sequence[NDArray[np.float64]], seed: int = 21) -> NDArray[np.float64]:
    """The middle 95 % of the means of 1,000 samples, float64 [2, MEASURES]: conversations are drawn with replacement,
    and of each of them its questions, because those of one conversation are not independent."""
    rng = np.random.default_rng(seed)
    tables = [each for each in tables if len(each)]
    means = np.empty((SAMPLES, len(MEASURES)))
    for sample in range(SAMPLES):
        drawn = [tables[place] for place in rng.integers(len(tables), size=len(tables))]
        means[sample] = np.concatenate([each[rng.integers(len(each), size=len(each))] for each in drawn]).mean(axis=0)
    return np.percentile(means, [2.5, 97.5], axis=0)


def figures(arm: str, conversations: Sequence[Conversation], rankings: Rankings) -> dict[str, float]:
    """`ARM.MEASURE`, with `.low` and `.high` of its interval, and `ARM.MEASURE.category_N`.

    Where some of the conversations are those that constants were picked on, `ARM.MEASURE.unseen` is over the others,
    with its interval.
    """
    tables = table(conversations, rankings)
    rows = np.concatenate(tables)
    result = _with_interval(tables, f"{arm}.{{}}")
    unseen = [each for each, conversation in zip(tables, conversations, strict=True) if not was_tuned_on(conversation)]
    if 0 < len(unseen) < len(tables):
        result |= _with_interval(unseen, f"{arm}.{{}}.unseen")
    categories = np.array([question.category for each in conversations for question in each.questions])
    for category in sorted(set(categories.tolist()) - {""}):
        for place, name in enumerate(MEASURES):
            result[f"{arm}.{name}.category_{category}"] = rows[categories == category, place].mean()
    return {name: round(float(value), 4) for name, value in result.items()}


def _with_interval(tables: Sequence[NDArray[np.float64]], key: str) -> dict[str, float]:
    means = np.concatenate(tables).mean(axis=0)
    low, high = interval(tables)
    row: dict[str, float] = {}
    for place, name in enumerate(MEASURES):
        label = key.format(name)
        row |= {label: means[place], f"{label}.low": low[place], f"{label}.high": high[place]}
    return row
