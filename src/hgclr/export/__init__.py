"""Exports of models for other programs."""
