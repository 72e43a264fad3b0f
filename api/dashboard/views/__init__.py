"""What templates show, made of what the store and the mapper have: pure functions."""
