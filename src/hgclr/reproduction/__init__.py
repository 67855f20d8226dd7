"""The paper again: its tables, its figures, and the search for its settings."""
