"""Serve libraries to browsers and other programs. Routes and tools translate; the library answers."""
