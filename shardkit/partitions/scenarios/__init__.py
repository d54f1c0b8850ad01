"""Scenarios of ``shardkit simulate``: read and check a file, generate items, run and compare the ways."""
