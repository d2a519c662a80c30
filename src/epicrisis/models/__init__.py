"""Whatever runs a network: encoders, chat models, and the catalogue that pins what can be downloaded."""
