"""A folder on disk that keeps passages and finds them again."""
