"""Browsers, and consoles for them to look at."""
