"""Chat models, over an endpoint or embedded, and the layers that wrap any of them."""
