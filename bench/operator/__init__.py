"""The operator against a plain Kopf operator, on a real API server."""
