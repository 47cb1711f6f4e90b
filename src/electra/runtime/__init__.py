"""Runtime: device, precision, processes, memory, signals."""
