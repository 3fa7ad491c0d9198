"""Which parts of the tuning are on: all but those that LEARNLOOP_TUNING_OFF names, `text-packing` say, or `all`."""

import os

VARIABLE = "LEARNLOOP_TUNING_OFF"
PARTS = frozenset({"value-objects", "text-packing", "stateless-kopf", "garbage-collection"})


def parts_off(text: str) -> frozenset[str]:
    """The parts that the variable's value switches off.

    Raises:
        ValueError: it names something else.
    """
    named = frozenset(item.strip() for item in text.split(",") if item.strip())
    if strange := sorted(named - PARTS - {"all"}):
        raise ValueError(f"{VARIABLE} names {', '.join(strange)}: set all, or some of {', '.join(sorted(PARTS))}")
    return PARTS if "all" in named else named


def is_on(part: str) -> bool:
    """Whether the part is on. A variable that is no list of parts switches nothing off; the operator refuses it."""
    try:
        return part not in parts_off(os.environ.get(VARIABLE, ""))
    except ValueError:
        return True
