"""The one exception a user of these scripts is meant to see."""


class Refusal(Exception):
    """Work that cannot be done here. The text says what is in the way and what to do about it."""
