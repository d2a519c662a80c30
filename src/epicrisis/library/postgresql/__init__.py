"""Libraries in PostgreSQL, named by a URL: `postgresql://reader@db.example.org/hospital`."""
