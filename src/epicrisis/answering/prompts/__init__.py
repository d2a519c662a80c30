"""The prompt files. Their hash stands in every trace, so a changed word is a changed recipe."""
