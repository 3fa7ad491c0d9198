"""Rewards: pure components and statistics, and the worker that applies them."""
