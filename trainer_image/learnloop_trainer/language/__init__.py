"""Language models that learn: rows of tokens, losses, adapters, sampling, and the algorithms over them."""
