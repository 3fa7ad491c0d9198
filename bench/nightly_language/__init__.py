"""A language model of the size that people use learns to call a tool: `make nightly-language`."""
