"""Render the page of the server: answers with their evidence, libraries, patients, runs and reviews."""
