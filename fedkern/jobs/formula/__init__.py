"""`model.formula` of the methods that have it: read from the job file, laid over its other keys, and agreed by all parties."""
