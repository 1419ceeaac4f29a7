"""What measured numbers say: how sure a speedup is, and when a figure is not to be trusted."""
