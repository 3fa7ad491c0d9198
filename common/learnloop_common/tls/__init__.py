"""TLS between the parts: contexts that follow their files, and certificates."""
