"""Federated Hamiltonian Monte Carlo and MALA."""
