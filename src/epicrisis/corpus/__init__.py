"""Text comes in: one reader a source, each an iterator of documents; questions; and the cutting into passages."""
