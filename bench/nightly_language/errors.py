"""Why a night's run does not take place."""


class NotHereError(Exception):
    """The model cannot be had on this machine: the run is skipped, with this reason."""
