"""Algorithms that know nothing of AWS."""
