"""The command line: a thin translator of the library's functions."""
