"""Training by other programs than learnloop's own learners, and the proof of what they made."""
