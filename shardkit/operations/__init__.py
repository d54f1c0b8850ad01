"""What each operation of DynamoDB means for a sharded table."""
