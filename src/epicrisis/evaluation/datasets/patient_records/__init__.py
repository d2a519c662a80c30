"""Question sets about patient records, a module for each."""
