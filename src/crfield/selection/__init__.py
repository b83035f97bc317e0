"""Feature selection: which columns a chain should look at."""
