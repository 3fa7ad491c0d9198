"""Whether a memory that is there now was away at some instant: it was retired, and came back later."""


def away(namespace: str, memory: str, at: str) -> str:
    """The SQL condition, of SQL expressions; a NULL for `at` is no instant, and nothing was away then.

    Who asks about now need not ask this: what is away now is retired.
    """
    return (
        f"EXISTS (SELECT 1 FROM memory_absences a WHERE a.namespace = {namespace} AND a.memory_id = {memory}"
        f" AND a.since <= {at} AND a.until > {at})"
    )
