"""Boosting with incomplete information: part of what a datum is made of is hidden in part of the data.

    s(x, h, y) = λ₁·f₁(x, y) + λ₂·f₂(x, h, y)          q₀(h | x)  the prior belief of what is hidden

(Haffari, Wang, Wang, Mori & Jiao, ICML 2008.) Every datum has a row of columns, conjoined with the label to give f₁,
and a hidden part h, known for some data and not for others. Where h is known the prior is a point mass; that is the
only difference between the two kinds of data, and no code below makes another.

    cells        a short list of what h may be, each with its prior: one value, several attributes, drawn samples
    losses       what a datum costs, and the weights of its cells that the gradient is made of
    enumerated   losses over cells                      (all of them)
    factored     losses where h is a chain or a bag and the sum over it factorises      (exp, joint, hcrf)
    updates      parallel and sequential updates of the paper beside L-BFGS
"""
