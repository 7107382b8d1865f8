"""Reads formulas as R has them, and makes columns of a model from a file's columns and agreed facts alone.

`factors` reads one factor, such as `log(bmi)`; `splines` has bases; `expansion` makes columns of all terms. Text is never
evaluated as Python: a factor is read into nodes of a few kinds, and everything else is refused.
"""
