"""The page: an answer with its evidence, as HTML that the server renders."""
