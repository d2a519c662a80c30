"""Making what strategies show or search: databases of solved questions."""
