"""Chat models and the layers that wrap any chat model."""
