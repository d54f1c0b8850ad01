"""What real processes did to a table, under kills, stops and lost requests; and whether any order explains it."""
