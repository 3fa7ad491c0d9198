"""Who tells a failure from a good answer."""
