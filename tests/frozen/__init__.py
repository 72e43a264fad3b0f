"""What must not change unless somebody means it: see :mod:`tests.frozen.facts`."""
