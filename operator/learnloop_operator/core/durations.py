"""Durations for humans."""


def text(seconds: float) -> str:
    """At most two units, e.g. 45s, 1m20s, 2h05m, 3d04h."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    minutes, seconds_left = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m{seconds_left:02d}s"
    hours, minutes_left = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes_left:02d}m"
    days, hours_left = divmod(hours, 24)
    return f"{days}d{hours_left:02d}h"
