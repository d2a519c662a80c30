"""Grade answers: blind pairs, verdicts of people and models, measures of each answer, and calibration."""
