"""What the commands raise for people."""


class CommandError(Exception):
    """A sentence that says what is wrong and what to do; ends the command with status 1."""


class NoAnswerError(CommandError):
    """The API server is away or busy; the same question may be answered a moment later."""
