"""Notifications: one signed webhook that gets what people should know; a router passes it on."""
