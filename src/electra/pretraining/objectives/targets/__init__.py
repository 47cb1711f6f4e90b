"""Targets: predictions from a corrupted batch, with losses, metrics and FLOPs."""
