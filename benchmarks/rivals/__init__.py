"""Map-reduce by other libraries, and our own beside it: one script each, run by the interpreter of its environment."""
