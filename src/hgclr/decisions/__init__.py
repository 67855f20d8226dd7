"""Decoding rules, thresholds and calibration: from logits to label sets; numpy only."""
