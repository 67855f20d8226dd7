"""Reports, comparisons, audits and explanations of trained models."""
