"""Scores of predicted labels and probabilities against gold labels."""
