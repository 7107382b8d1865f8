"""Jobs of method "sparse": sparse regression, Markov random field and cyclic structural equations across sites."""
