"""How much of the evidence recall finds in conversations that nobody here wrote: `make bench-recall DIR=…`."""
