"""Virtual evidence boosting: the figures and tables of Liao, Choudhury, Fox & Kautz (2007), on generated data."""
