"""Measure answers: question sets, recorded runs, grading, experiments and their tables."""
