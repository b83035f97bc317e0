"""A server on this machine: an interface for programs, a page for people, and labelling that teaches the model."""
