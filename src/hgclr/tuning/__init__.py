"""Search for settings."""
