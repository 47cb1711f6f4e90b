"""Kinds of subword models: how tokens mark words, reading, training and extension of vocabularies."""
