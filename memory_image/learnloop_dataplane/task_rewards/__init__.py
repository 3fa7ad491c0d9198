"""Scores of stored episodes by evaluators, and the division of rewards among agents."""
