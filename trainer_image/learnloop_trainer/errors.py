"""What can end a run, and the exit code by which the operator tells the cases apart."""

EXIT_NEVER_RETRY = 2
EXIT_COUNTED = 70  # EX_SOFTWARE: ends the whole attempt, which the operator counts
EXIT_TERMINATED = 143  # 128 + SIGTERM
EXIT_RETRY = 203  # 128 + EX_TEMPFAIL


class TrainerError(Exception):
    """A run that ends for a reason a human can read. The text is one sentence."""

    exit_code = EXIT_RETRY


class ConfigError(TrainerError):
    """The order cannot be carried out as written; trying again would end the same way."""

    exit_code = EXIT_NEVER_RETRY

    def __init__(self, field: str, value: object, problem: str, fix: str) -> None:
        """Name the field, quote the (shortened) value, say what is wrong and what to do instead."""
        text = " ".join(str(value).split())
        shown = text if len(text) <= 120 else f"{text[:117]}..."
        super().__init__(f"{field}: {shown!r} {problem}; {fix}")


class NumericError(TrainerError):
    """A NaN or an infinity appeared; a deterministic run would meet it again."""

    exit_code = EXIT_NEVER_RETRY


class EnvironmentFailed(TrainerError):
    """A user's environment raised or hung: worth another attempt, but not endless ones."""

    exit_code = EXIT_COUNTED


class ExportError(TrainerError):
    """The exported graph does not do what the trained network does."""

    exit_code = EXIT_NEVER_RETRY


class StoreUnavailable(TrainerError):
    """The store did not answer in time."""


class StoreRefused(TrainerError):
    """The store understood the request and said no."""

    exit_code = EXIT_NEVER_RETRY


class PeerLost(TrainerError):
    """Another rank is gone: the group must form again from the newest durable checkpoint."""


class Terminated(BaseException):
    """SIGTERM: the state is saved, somebody wants the node back.

    It may be raised at any instruction, so it is no Exception: whoever catches all that a foreign library or a user's
    environment may raise must not take it for their failure.
    """

    exit_code = EXIT_TERMINATED
