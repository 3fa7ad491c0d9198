"""How the commands reach the API server, a Service behind it, and the data plane."""
