"""Several processes: the environment of torchrun, the process group, and collectives of tensors."""
