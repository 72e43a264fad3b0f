"""What one host carries: the farm's services on loopback, simulated boards, and their figures."""
