"""Agents: registration, the figures the operator reads, and what they observed."""
