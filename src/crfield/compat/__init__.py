"""Migration: other packages' names and conventions, so that code and models need not be rewritten."""
