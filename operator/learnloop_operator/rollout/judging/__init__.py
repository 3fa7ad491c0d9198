"""All checks of one arm at one look, and what they need to be asked."""
