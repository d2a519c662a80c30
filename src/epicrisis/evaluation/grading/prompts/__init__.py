"""The prompt files of what judges answers and proposes questions. Apart from those that answer, whose hash is part of
every run's recipe."""
