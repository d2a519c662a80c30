"""What wraps a chat model: each layer is a ChatModel over another one."""
