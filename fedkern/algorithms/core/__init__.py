"""What all machines share: messages, pieces of vectors, averages, optimisers, traces."""
