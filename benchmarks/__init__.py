"""What shardkit costs, beside the best that one can do without it: ``python -m benchmarks``."""
