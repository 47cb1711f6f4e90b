"""Pre-training by replaced token detection, and the objectives it is compared with."""
