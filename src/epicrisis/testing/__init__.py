"""The fakes and the contract checks, one file a seam. They ship, so that a new implementation can prove itself."""
