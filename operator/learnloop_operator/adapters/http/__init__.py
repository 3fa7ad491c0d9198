"""HTTP parts that several adapters share."""
