"""Training of any module that returns a loss: optimiser, schedule, loop, checkpoints, log. Knows nothing of ELECTRA."""
