"""The cost of TLS: medians of rounds of each way in turns, and one over the other."""

from statistics import median
from typing import Any

ROUNDS = 3
MOST = 1.15
"""The cost that TLS may have in each figure, as a ratio."""
Rounds = dict[str, list[dict[str, float]]]
"""`plain` and `tls` → figures of each round."""


def short(environment: dict[str, str]) -> dict[str, str]:
    """The variables as `Product` names its settings."""
    return {name.removeprefix("LEARNLOOP_"): value for name, value in environment.items()}


def compared(rounds: Rounds) -> dict[str, Any]:
    """Both ways' medians, and `tls_over_plain_…`: above 1 is worse, of rates (`…rps`) too.

    A p99 is printed and not judged: a handful of requests make it.
    """
    figures: dict[str, Any] = {}
    for name in rounds["plain"][0]:
        plain, tls = (median(one[name] for one in rounds[way]) for way in ("plain", "tls"))
        figures |= {f"plain_{name}": round(plain, 3), f"tls_{name}": round(tls, 3)}
        ratio = plain / tls if name.endswith("rps") else tls / plain
        figures[f"tls_over_plain_{name}"] = round(ratio, 3)
    worst = max(value for name, value in figures.items() if name.startswith("tls_over_plain_") and "p99" not in name)
    return figures | {"tls_over_plain_worst": worst, "tls_within_bar": worst <= MOST, "tls_bar": MOST}
