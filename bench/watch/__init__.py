"""`make bench-watch`: anomalies of simulated agents, found and missed."""
