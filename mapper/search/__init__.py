"""Search strategies: asked for candidates, told outcomes; pure, and the same for the same seed."""
