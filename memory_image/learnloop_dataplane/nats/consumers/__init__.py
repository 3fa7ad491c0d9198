"""Durable consumers of tenants: what JetStream's API would do for them, done by the data plane in their place."""
