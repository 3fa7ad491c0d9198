"""One leader at a time, and the proof that its watches are alive."""
