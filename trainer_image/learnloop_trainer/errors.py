"""Errors that end a run, besides an environment's own problems, and their exit codes."""

from learnloop_environments.errors import EXIT_NEVER_RETRY, TrainerError

EXIT_TERMINATED = 143  # 128 + SIGTERM


class NumericError(TrainerError):
    """A NaN or an infinity appeared; a deterministic run would meet it again."""

    exit_code = EXIT_NEVER_RETRY


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

    It may be raised at any instruction and does not derive from Exception: code that catches all that a foreign library
    or a user's environment may raise must not take it for their failure.
    """

    exit_code = EXIT_TERMINATED
