"""Sets that others publish, turned into data folders."""
