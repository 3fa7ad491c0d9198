"""Certificates of the installation's own parts, and the bundle by which tenants know them."""
