"""Expressions of DynamoDB requests: key conditions, conditions, updates and projections, read and rewritten."""
