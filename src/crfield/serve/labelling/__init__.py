"""Labelling: people correct the sequences that the model is least sure of, and the model learns from them."""
