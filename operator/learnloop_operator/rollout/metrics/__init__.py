"""The types of metrics, one module each: what each one counts, compares, asks for and says."""
