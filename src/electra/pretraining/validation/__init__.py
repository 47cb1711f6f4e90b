"""Checks of option values and of conflicts between options, before anything is read or trained."""
