"""Whose training runs next, where several agents want more than there is: pure decisions."""
