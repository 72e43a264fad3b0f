"""The typed functional IR: expressions, types, nodes, views, verification and its meaning."""
