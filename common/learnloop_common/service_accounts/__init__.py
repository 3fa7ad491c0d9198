"""Callers by their service-account tokens: what the data plane and policy servers know them by."""
