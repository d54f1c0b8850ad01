"""What a data file says about keys."""
