"""Boosting: weak learners on columns, working responses, rounds, and what virtual evidence makes of them."""
