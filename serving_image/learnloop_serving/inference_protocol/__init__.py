"""Open Inference Protocol v2."""
