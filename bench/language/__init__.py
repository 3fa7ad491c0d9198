"""Cost and gain of training a language model of 118,000 parameters: `make bench-language`."""
