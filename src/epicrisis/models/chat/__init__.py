"""Chat models, at an endpoint or embedded, and the layers around them."""
