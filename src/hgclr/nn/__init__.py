"""The parts of the method, with their equations; torch only."""
