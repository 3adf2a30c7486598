"""The table run for real: one process for each rank, which walks its row; gradients and times are measured."""
