"""Checkpoints of the original TensorFlow code, read without TensorFlow."""
