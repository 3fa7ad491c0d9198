"""The memory service, beside what it is put beside."""
