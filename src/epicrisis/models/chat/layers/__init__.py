"""Layers around a chat model. Each is a ChatModel that wraps another one."""
