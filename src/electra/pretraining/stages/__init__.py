"""What a run starts from and in which stages it trains: initial weights, a stem, one stage or two."""
