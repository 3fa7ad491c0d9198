"""Hard bounds on the counters that each pod serves itself."""
