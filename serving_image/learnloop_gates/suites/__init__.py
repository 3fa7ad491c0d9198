"""The built-in suites, a module each."""
