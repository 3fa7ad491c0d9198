"""What is known of each arm."""
