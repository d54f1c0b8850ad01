"""Time series: one logical table, stored in a table for each period."""
