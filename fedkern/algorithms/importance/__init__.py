"""The exact posterior of what clients share: the mode by Newton steps, then importance weights of draws around it."""
