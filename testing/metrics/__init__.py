"""What dashboards and alerts ask, compared with what the servers export."""
