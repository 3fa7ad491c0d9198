"""The reference of the documentation, generated from the code that it describes."""
