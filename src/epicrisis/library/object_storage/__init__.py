"""Libraries on object storage, named by a URL: `s3://bucket/folder`."""
