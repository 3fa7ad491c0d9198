"""One module for each kind: it gathers what a decision needs and hands it to the core."""
