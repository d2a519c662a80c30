"""Question sets about patients' records, a file each, and what of them a study took."""
