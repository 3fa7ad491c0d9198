"""Proxies between a client and an API server: they count, hold, spoil and forward."""
