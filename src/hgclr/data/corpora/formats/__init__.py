"""Formats of the literature, turned into data folders: HiAGM, NeuralClassifier, fastText."""
