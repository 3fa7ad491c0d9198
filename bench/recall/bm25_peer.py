"""BM25 by a library, in the peers' own environment: rank_bm25's BM25Okapi as it is.

Reads JSON from stdin, {"conversation": {"turns": [[id, words], …], "questions": [words, …]}}, and writes the ids of the
DEPTH best turns of each question.
"""

import json
import sys

import numpy as np
from rank_bm25 import BM25Okapi

DEPTH = 30


def main() -> None:
    """Ranks."""
    ranked = {}
    for name, conversation in json.load(sys.stdin).items():
        ids = [identity for identity, _ in conversation["turns"]]
        index = BM25Okapi([words for _, words in conversation["turns"]])
        orders = (np.argsort(-index.get_scores(question), kind="stable") for question in conversation["questions"])
        ranked[name] = [[ids[place] for place in order[:DEPTH]] for order in orders]
    json.dump(ranked, sys.stdout)


if __name__ == "__main__":
    main()
