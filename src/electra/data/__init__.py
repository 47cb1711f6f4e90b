"""Data: examples from a corpus, shards on disk, and the batch loader."""
