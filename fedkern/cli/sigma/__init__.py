"""Jobs with a trained prior that factorises over clients (method "sigma"), and the training of that prior."""
