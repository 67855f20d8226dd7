"""Scores of predicted label sets against gold ones."""
