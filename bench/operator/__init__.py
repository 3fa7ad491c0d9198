"""The operator beside a plain Kopf operator, on a real API server."""
