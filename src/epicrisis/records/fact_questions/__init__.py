"""Questions about the structured facts of a record: planned from their words, answered by computation."""
