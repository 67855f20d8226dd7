"""Corpora: what publishers hand out, turned into data folders. One module each; nothing is downloaded."""
