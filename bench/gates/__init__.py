"""Failures that gates stop, failures that they let through, and gates whose suites fail themselves."""
