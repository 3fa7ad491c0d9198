"""The time that a gateway adds to an answer, compared with the bare model server."""
