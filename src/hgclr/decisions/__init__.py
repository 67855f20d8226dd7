"""From probabilities to label sets: decoding rules, thresholds, calibration; numpy only."""
