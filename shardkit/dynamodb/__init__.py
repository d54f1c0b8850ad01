"""The service's formats, sizes, prices and errors."""
