"""Scores of predicted label sets."""
