"""BM25 by a library, in the peers' own environment: rank_bm25's BM25Okapi as it is.

Reads JSON from stdin, {"conversation": {"turns": [[id, session, words], …], "questions": [words, …]}}, and writes
the ids of the DEPTH best turns of each question. The argument is the share of its neighbours' scores that a turn has.
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
        ids, sessions, texts = zip(*conversation["turns"], strict=True)
        share = float(sys.argv[1]) * (np.array(sessions[1:]) == np.array(sessions[:-1]))
        index = BM25Okapi(texts)
        scores = (index.get_scores(question) for question in conversation["questions"])
        sums = (own + np.append(0, share * own[:-1]) + np.append(share * own[1:], 0) for own in scores)
        orders = (np.argsort(-each, kind="stable") for each in sums)
        ranked[name] = [[ids[place] for place in order[:DEPTH]] for order in orders]
    json.dump(ranked, sys.stdout)


if __name__ == "__main__":
    main()
