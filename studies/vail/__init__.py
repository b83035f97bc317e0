"""Conditional random fields for activity recognition: the experiments of Vail's thesis (2008)."""
