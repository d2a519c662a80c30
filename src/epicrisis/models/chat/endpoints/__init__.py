"""The protocol of OpenAI-compatible endpoints: addresses, requests, replies, usage and failures."""
