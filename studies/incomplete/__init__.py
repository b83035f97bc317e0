"""Boosting with incomplete information: the experiments of Haffari, Wang, Wang, Mori & Jiao (2008)."""
