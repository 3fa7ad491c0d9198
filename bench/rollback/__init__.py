"""Seconds from a breach to a canary's weight 0, against Flagger on the same cluster, gateway and faulty server."""
