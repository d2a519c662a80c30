"""Turn outcomes into tables, and tables into text and sentences. Holds the published tables too."""
