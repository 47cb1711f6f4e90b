"""Recommendation of a run for a text, a machine and a number of hours."""
