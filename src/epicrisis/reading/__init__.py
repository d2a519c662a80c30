"""Read articles: the role of a sentence, which sentences answer a question, and what effect they report.

Plain data in and out. The models are trained by `make reader` (docs/design/reading.md).
"""
