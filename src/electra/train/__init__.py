"""Training of any module that returns a loss: optimizer, schedule, loop, checkpoints, log. Knows nothing of ELECTRA."""
