"""Which objects wait for a pass, and in which order they get one."""
