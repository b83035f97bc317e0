"""Handwritten words: trees and kernels on pixels, in chains of letters."""
