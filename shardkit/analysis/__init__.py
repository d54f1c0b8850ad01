"""What a data file, or a sample of a table, says about keys."""
