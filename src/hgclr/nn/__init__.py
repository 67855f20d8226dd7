"""The pieces of the method, each a small module with its equation; torch only."""
