"""Formulas as R has them: which columns of a model one makes of a file's columns, by what all parties agree on and nothing else.

`factors` reads one factor, such as `log(bmi)`; `splines` has bases; `expansion` makes columns of all terms. Text is never
evaluated as Python: a factor is read into nodes of a few kinds, and what is none of these is refused.
"""
