"""What each operation means on a sharded table."""
