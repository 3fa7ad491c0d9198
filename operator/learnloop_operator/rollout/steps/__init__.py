"""Steps of a canary: wait, rise, roll back, or become stable."""
