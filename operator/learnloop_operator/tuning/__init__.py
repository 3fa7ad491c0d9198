"""What makes libraries and values cheaper from within. Each part can be switched off; everything works without it."""
