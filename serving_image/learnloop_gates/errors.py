"""What stops a suite."""


class SuiteError(Exception):
    """The suite cannot say anything about the candidate; the message names the cause and the fix.

    Its container ends with exit code 1 and this message, and so the gate is not passed.
    """
