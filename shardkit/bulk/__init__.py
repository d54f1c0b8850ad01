"""Bulk loading: batches, interleaved over partition keys, with one result per item."""
