"""The loop on one machine: the operator unchanged, an API server in memory, and pods as processes."""
