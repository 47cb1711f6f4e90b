"""From a corpus to batches: examples, shards on disk, and the loader."""
