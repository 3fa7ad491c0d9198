"""Loki and an OpenTelemetry collector as processes, built from their Go modules."""
