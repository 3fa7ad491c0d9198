"""Who may connect to PostgreSQL, and by which passwords."""
