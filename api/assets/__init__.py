"""Files that the API serves as they are; ASSETS.toml lists those of others."""
