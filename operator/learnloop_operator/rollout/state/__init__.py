"""Input of a decision, and the memory that the status keeps."""
