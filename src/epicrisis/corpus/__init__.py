"""Read documents and questions from files of many formats, and split documents into passages."""
