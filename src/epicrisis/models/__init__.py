"""Models: encoders, rerankers and chat models, and the catalogue of those that can be downloaded."""
