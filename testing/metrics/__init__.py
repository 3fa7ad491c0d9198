"""The queries of dashboards and alerts, compared with the servers' metrics."""
