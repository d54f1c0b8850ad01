"""Stage the items of a source in S3 for DynamoDB's own bulk writes, and import them."""
