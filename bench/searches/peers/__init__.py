"""Searches of other projects on a recording; each runs in the peers' environment."""
