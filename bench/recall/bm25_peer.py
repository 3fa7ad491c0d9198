"""Plain BM25 by a library, in the peers' own environment: rank_bm25's BM25Okapi as it is, over lower-case words.

Reads JSON from stdin, {"conversation": {"turns": [[id, text], …], "questions": [text, …]}}, and writes the ids of the
DEPTH best turns of each question.
"""

import json
import re
import sys

import numpy as np
from rank_bm25 import BM25Okapi

DEPTH = 30
_WORD = re.compile(r"[^\W_]+")


def main() -> None:
    """Ranks."""
    found = {}
    for name, told in json.load(sys.stdin).items():
        ids = [identity for identity, _ in told["turns"]]
        index = BM25Okapi([_WORD.findall(text.lower()) for _, text in told["turns"]])
        orders = (
            np.argsort(-index.get_scores(_WORD.findall(asked.lower())), kind="stable") for asked in told["questions"]
        )
        found[name] = [[ids[place] for place in order[:DEPTH]] for order in orders]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
