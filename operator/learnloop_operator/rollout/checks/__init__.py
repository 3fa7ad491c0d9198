"""What the evidence proves: one module for each kind of check."""
