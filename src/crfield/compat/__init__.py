"""Other packages' names and habits, so that code and models can move here without being rewritten."""
