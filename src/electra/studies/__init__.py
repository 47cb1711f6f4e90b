"""The paper's tables and figures: its costs recomputed, its comparisons as grids of runs at equal compute."""
