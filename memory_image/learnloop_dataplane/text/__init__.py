"""Words of a memory's text, and when a text repeats another one."""
