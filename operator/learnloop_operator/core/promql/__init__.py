"""Users' own PromQL: read, and kept to the series of their namespace."""
