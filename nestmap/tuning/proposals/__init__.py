"""Which candidates a search builds next: of any space, and of the blocked convolutions."""
