"""Studies: tables and figures of papers and of the documentation, computed again.

They stand beside ``src`` and are no part of what is installed. ``crfield experiment NAME`` and ``crfield reproduce
NAME`` run them from a checkout.
"""
