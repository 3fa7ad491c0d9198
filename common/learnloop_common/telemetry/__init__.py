"""Telemetry that all servers share."""
