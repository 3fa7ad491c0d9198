"""Learners that take no step, beside a library's, on the same logs."""
