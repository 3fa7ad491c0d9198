"""What a decision reads and what the status remembers."""
