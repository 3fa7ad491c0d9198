"""What gates stop, what they let through, and what they do about suites that fail themselves."""
