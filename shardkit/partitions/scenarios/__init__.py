"""Scenarios of ``shardkit simulate``: what a file says, checked; its items; and the ways in which they are written."""
