"""The folder of a run, the outcomes of its cases, and the energy that they took."""
