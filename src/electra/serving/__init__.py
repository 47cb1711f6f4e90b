"""What comes after training: predicting with fine-tuned models."""
