"""A long history of one agent, and what statements read of it."""
