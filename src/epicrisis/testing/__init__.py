"""Fakes of encoders, models and stores, and the contract checks of real ones. Part of the package, for users' tests."""
