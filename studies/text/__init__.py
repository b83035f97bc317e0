"""Names and chunks in sentences: features, segments, hidden labels, higher order."""
