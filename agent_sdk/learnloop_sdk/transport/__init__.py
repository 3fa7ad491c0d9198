"""HTTP connections, a circuit breaker, and the agent's token."""
