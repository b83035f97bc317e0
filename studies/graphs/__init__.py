"""Models of graphs: what training and inference do where exact sums are too large."""
