"""MemoryService: a namespace's own memory, on a PostgreSQL of ours or of yours."""
