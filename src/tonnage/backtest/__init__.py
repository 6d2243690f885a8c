"""Rows with or without answers -> predictions that others can score, and a table of errors where answers are present."""
