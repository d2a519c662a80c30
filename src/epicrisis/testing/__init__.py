"""Fakes of every seam and the contract checks that real implementations pass. They ship: users test with them too."""
