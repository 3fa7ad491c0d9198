"""People and programs are told: what is to be said lies in a table until whoever should hear it has taken it."""
