"""Real servers, and recording ones, for as long as a test or a bench runs."""
