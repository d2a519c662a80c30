"""The HTTP server: one process that opens libraries and models once, and answers the requests of many users."""
