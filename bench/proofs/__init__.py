"""What nestmap promises, tried on random programs, small ones exhaustively, and on layers."""
