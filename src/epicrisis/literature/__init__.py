"""Articles from PubMed and Europe PMC, for the libraries of this machine."""
