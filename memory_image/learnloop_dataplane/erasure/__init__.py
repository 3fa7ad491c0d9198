"""The right to erasure: all that came from one person, or one agent, goes, stays gone, and a receipt says so."""
