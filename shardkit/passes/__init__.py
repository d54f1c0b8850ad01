"""A pass over a whole table: its scans, its rate, and how it is run and journaled."""
