"""What operations do on a table whose items move from one strategy to another (``Resharding``)."""
