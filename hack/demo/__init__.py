"""The story `make demo` tells."""
