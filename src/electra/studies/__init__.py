"""The paper's tables and figures: its costs counted, and its comparisons as grids of runs at equal compute."""
