"""Figures for people: as many decimals as their size needs, the same for all of an interval."""


def digits(*values: float) -> int:
    """Decimals that show differences between these: returns within 0 and 1 need three, those of hundreds one."""
    largest = max(map(abs, values))
    return 3 if largest < 1 else 2 if largest < 10 else 1


def figure(value: float, *, sign: bool = False) -> str:
    """e.g. 487.2, 8.25, 0.694; with a sign +0.021."""
    return f"{value:{'+' if sign else ''}.{digits(value)}f}"


def interval(value: float, low: float, high: float, *, sign: bool = False) -> str:
    """e.g. 487.2 [481.0, 492.1]"""
    form = f"{'+' if sign else ''}.{digits(value, low, high)}f"
    return f"{value:{form}} [{low:{form}}, {high:{form}}]"
