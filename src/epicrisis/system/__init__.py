"""The process, its network and its logs."""
