"""The tables and figures of the paper, and learning curves."""
