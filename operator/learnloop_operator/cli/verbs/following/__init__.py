"""Verbs that follow an agent: as it happens, as a report, and to the end of a run."""
