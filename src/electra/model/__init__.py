"""Networks: BERT's encoder, ELECTRA's two heads, their FLOPs, and weight names of other checkpoint formats."""
