"""What every room of the server uses: bodies of requests, errors, addresses, callers, figures, folders"""
