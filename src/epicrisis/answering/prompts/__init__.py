"""The prompt files. Their hash is in every trace, so a changed word is a changed recipe."""
