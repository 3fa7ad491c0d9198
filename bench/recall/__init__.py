"""How much of the evidence recall finds in conversations from elsewhere: `make bench-recall DIR=…`."""
