"""Figures 3 and 5 of the paper: the tokens that positive samples keep, and the map of label vectors."""
