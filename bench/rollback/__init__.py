"""How soon a breach has taken a canary's weight to 0, beside Flagger on the same cluster, gateway and faulty server."""
