"""What a trained model does: reports, comparisons, audits, explanations."""
