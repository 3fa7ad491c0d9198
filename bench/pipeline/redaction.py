"""`python -m bench.pipeline.redaction [COUNT]`: plants secrets, redacts as publisher and as consumer, looks for them.

The last line is one JSON object: leaks on either side (each must hold alone), unstable pseudonyms, what it costs, and
the share of ordinary ids, hashes and numbers that were taken for secrets.
"""

import json
import random
import sys
import time
from collections import Counter
from typing import Any

from bench.arguments import numbers
from bench.pipeline.ordinary import KINDS, UNDECIDABLE
from bench.pipeline.planted import WORDS, Planted, planted
from learnloop_common.redaction.redactor import Redaction
from learnloop_dataplane.memories.memory_store import redacted_content

SEED = 20261121
COUNT = 100_000
KEY = bytes(range(32))
SIDES = ("publisher", "consumer", "both", "memory")


def leaks(item: Planted, rules: Redaction) -> dict[str, bool]:
    """Did it get past the publisher's hook, the consumer's, or both of them in a row, or into a memory?"""
    hook = rules.value(item.value)
    masked = {"publisher": hook, "consumer": rules.value(item.value), "both": rules.value(hook)}
    masked["memory"], _ = redacted_content({"content": item.value})
    texts = {side: json.dumps(value, ensure_ascii=False) for side, value in masked.items()}
    return {side: any(core in text for core in item.cores) for side, text in texts.items()}


def run(count: int, seed: int = SEED) -> dict[str, Any]:
    """Plants `count` secrets and counts what leaks."""
    rng, rules, leaked, kinds = random.Random(seed), Redaction(KEY), Counter[str](), Counter[str]()
    unstable = 0
    for _ in range(count):
        item = planted(rng)
        kinds[item.kind] += 1
        for side, got_out in leaks(item, rules).items():
            leaked[side] += got_out
        once = rules.value(item.value)
        unstable += rules.value(once) != once or rules.value(item.value) != once
    ordinary = taken_for_secrets(rng, rules, count // 5)
    decidable = [share for kind, share in ordinary.items() if kind != UNDECIDABLE]
    wrong = sum(decidable) / len(decidable) * count  # as many ordinary texts as planted ones, of all kinds alike
    safe = count - leaked["both"]
    return {
        "test_set": "generated",
        "recall": round(safe / count, 6),
        "precision": round(safe / max(1.0, safe + wrong), 6),
        "planted": count,
        "leaked": {side: leaked[side] for side in SIDES},
        "leaked_together": leaked["both"],
        "unstable": unstable,
        "kinds": dict(sorted(kinds.items())),
        "taken_for_secrets": {kind: round(share, 6) for kind, share in ordinary.items()},
        "redact_16kB_ms": round(_cost(rng, rules), 3),
    }


def holds(result: dict[str, Any]) -> bool:
    """Neither side let a secret out alone, and every pseudonym is what it was."""
    return not any(result["leaked"].values()) and result["unstable"] == 0


def taken_for_secrets(rng: random.Random, rules: Redaction, count: int) -> dict[str, float]:
    """Of `count` ordinary texts of each kind, the share that does not come out as it went in."""
    return {
        kind: sum(rules.text(text) != text for text in (make(rng) for _ in range(count))) / max(1, count)
        for kind, make in KINDS.items()
    }


def _cost(rng: random.Random, rules: Redaction) -> float:
    """Median milliseconds for 20 turns of 800 characters with one e-mail address each."""
    turns = [" ".join(rng.choices(WORDS, k=180))[:770] + " ask anna@example.org" for _ in range(20)]
    times = []
    for _ in range(21):
        started = time.perf_counter()
        rules.value(turns)
        times.append(time.perf_counter() - started)
    return sorted(times)[10] * 1000


if __name__ == "__main__":
    last = run(numbers(__doc__, sys.argv[1:], count=COUNT).count)
    print(json.dumps(last))
    sys.exit(0 if holds(last) else 1)
