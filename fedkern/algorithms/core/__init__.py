"""Holds the parts that all machines share: messages, pieces of vectors, averages, optimisers, traces."""
