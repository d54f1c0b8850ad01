"""Popular items from memory: what is kept, for how long, and what a write makes of it."""
