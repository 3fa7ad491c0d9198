"""The memory service against its peers."""
