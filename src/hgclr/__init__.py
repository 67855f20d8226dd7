"""Sort text into a tree of labels with hierarchy-guided contrastive learning (HGCLR, ACL 2022)."""
