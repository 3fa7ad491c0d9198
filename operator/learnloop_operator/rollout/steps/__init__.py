"""What a canary does next: wait, rise, roll back, or stay as stable."""
