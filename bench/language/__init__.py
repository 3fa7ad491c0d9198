"""What training a language model costs and brings, on a model of 118,000 parameters: `make bench-language`."""
