"""Runs: cases, the loop that asks them, the folder and the records that stay. Knows no experiment."""
