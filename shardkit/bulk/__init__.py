"""Bulk loading: interleaved over partition keys, in batches, with a result an item."""
