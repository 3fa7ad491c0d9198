"""What a gateway adds to the time of an answer, beside the bare model server."""
