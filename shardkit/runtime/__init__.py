"""What sends requests: clients, threads, tasks, processes, and botocore's events."""
