"""Malformed input of every kind, drawn by a seed, given to real commands: see `__main__`."""
