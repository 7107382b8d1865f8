"""Samples by federated Hamiltonian Monte Carlo and MALA."""
