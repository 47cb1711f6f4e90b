"""Where a run happens: device, precision, processes, memory, signals."""
