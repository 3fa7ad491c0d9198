"""Small networks with written gradients, what normalises their inputs, and schedules of numbers."""
