"""Make test material: fictional records, generated questions, solved examples, injection attacks."""
