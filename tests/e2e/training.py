"""A training whose outcome is known: the same data, split over the ranks. Run by torch, as a script or as a
cell; imports nothing of mgpu.

Gradients are averaged over the ranks, so that the weights are those of one process that has all data. Rank 0
writes them down.
"""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS, SAMPLES = 5, 24


def train(rank: int, world: int, wrap) -> list[float]:
    torch.manual_seed(7)
    x = torch.randn(SAMPLES, 3, dtype=torch.float64)
    y = (x @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)).unsqueeze(1)
    inner = torch.nn.Linear(3, 1).double()
    model = wrap(inner)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    mine = slice(rank * SAMPLES // world, (rank + 1) * SAMPLES // world)
    for _ in range(STEPS):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x[mine]), y[mine]).backward()
        optimizer.step()
    return [value for parameter in inner.parameters() for value in parameter.detach().flatten().tolist()]


def say(line: str) -> None:
    """Write a line in one piece: ranks below one launcher share its stdout."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    if "RANK" not in os.environ:
        say(f"weights {json.dumps(train(0, 1, lambda model: model))}")
        return
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    weights = train(rank, world, DistributedDataParallel)
    say(f"rank {rank} of {world} on {os.environ['MGPU_NODE_ID']}")
    if rank == 0:
        say(f"weights {json.dumps(weights)}")
    dist.barrier()
    dist.destroy_process_group()
    os._exit(
        0
    )  # now and then torch aborts while the interpreter is taken apart: one of its threads is still there


if __name__ == "__main__":
    sys.exit(main())
