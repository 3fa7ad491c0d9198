"""What every server that Prometheus scrapes shares."""
