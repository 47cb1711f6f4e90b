"""The networks: BERT's encoder, ELECTRA's two heads, their cost, and their names in other people's checkpoints."""
