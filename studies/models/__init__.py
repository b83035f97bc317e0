"""Which model when: worlds in which the truth is known, made for one question each."""
