"""What patches or tunes the runtime and libraries from within."""
