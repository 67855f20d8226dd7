"""What is in a data folder: one pass over it, statistics, findings, plots and a report."""
