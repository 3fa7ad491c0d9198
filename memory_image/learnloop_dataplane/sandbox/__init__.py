"""Runs untrusted code: a Job in a namespace that reaches nothing, and in it a process with limits. Its
tests are data, and stay here."""
