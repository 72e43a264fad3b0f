"""Whatever strict mode returns is right: random programs, random mappings, two judges."""
