"""What the optimisers of several recipes have in common."""

from dataclasses import replace

from stillmotion.optim.optimizers import OptimConfig

SGD = OptimConfig(name="sgd", lr_batch=64, weight_decay=1e-4, batch=64, warmup_epochs=0.0)
# Its rate is taken as it is, whatever the batch.
ADAMW = OptimConfig(name="adamw", lr_batch=0, weight_decay=0.05, warmup_epochs=1)
# For small networks on a CPU.
SMALL_ADAMW = replace(ADAMW, batch=16, clip=1.0)
