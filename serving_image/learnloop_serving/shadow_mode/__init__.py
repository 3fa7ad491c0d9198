"""Copies of live requests to an arm in shadow, and what it would have earned."""
