"""Corruptions: what the discriminator or main encoder reads at the masked positions, and which positions these are."""
