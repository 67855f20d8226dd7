"""Split one's own data into train, dev and test: every label in the same share, no text in two splits."""

from hgclr.data.splitting.drawing import SplitResult, split_data

__all__ = ["SplitResult", "split_data"]
