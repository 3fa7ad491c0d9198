"""Servers that come in pairs and clusters, of which a test kills one."""
