"""Models to and from other programs' formats."""
