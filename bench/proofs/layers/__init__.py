"""Random strict candidates of layers compile, run and are right: ``nestmap bench layers``."""
