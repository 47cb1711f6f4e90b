"""Fine-tuning: tasks, heads, the paper's protocol, scores. It reads an encoder directory and never imports pretraining."""
