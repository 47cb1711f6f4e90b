"""Several processes of one run."""

TIMEOUT = 120
"""Seconds; processes that wait for each other do so for much longer."""
