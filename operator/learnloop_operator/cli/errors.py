"""The one exception the commands raise for people."""


class CommandError(Exception):
    """A sentence that says what is wrong and what to do; ends the command with status 1."""
