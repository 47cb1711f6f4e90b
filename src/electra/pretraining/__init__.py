"""Pre-training by replaced token detection and the objectives that the paper compares it with."""
