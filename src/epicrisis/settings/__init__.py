"""Settings: keys, files, presets and the services that answer."""
