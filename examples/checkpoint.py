"""A command that hesrpt can resize: it estimates π in parallel, and continues from its checkpoint.

hesrpt resizes such a command by stopping it, without warning, and starting it again with another
number of processes (``resize = "restart"``, see checkpoint.toml). So the program does three things:

- it takes the number of processes from its command line;
- it saves what is done after every few blocks, to a file that is replaced as a whole;
- when it starts, it continues from that file.

Nothing of it is about hesrpt, Slurm or Dask, and it can run by itself:

    python examples/checkpoint.py /tmp/pi.json --blocks 40 --processes 2
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from multiprocessing import Pool
from pathlib import Path

POINTS = 20_000  # of each block
REST = 0.1  # seconds that a block also takes, for instance for data that it would wait for


def count_inside(block: int) -> int:
    """Return how many of a block's random points lie in the quarter circle."""
    random_numbers = random.Random(block)
    time.sleep(REST)
    return sum(
        random_numbers.random() ** 2 + random_numbers.random() ** 2 < 1 for _ in range(POINTS)
    )


def save(checkpoint: Path, progress: dict[str, object]) -> None:
    """Replace the checkpoint: whoever is killed meanwhile leaves the old one or the new one."""
    new = checkpoint.with_suffix(".new")
    with new.open("w") as file:
        json.dump(progress, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(checkpoint)


def main() -> None:
    """Do what is left of the blocks."""
    parser = argparse.ArgumentParser(description="Estimate π, with checkpoints.")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--blocks", type=int, default=400)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()

    done, inside, starts = 0, 0, []
    if options.checkpoint.exists():
        earlier = json.loads(options.checkpoint.read_text())
        done, inside, starts = earlier["done"], earlier["inside"], earlier["starts"]
    starts.append({"done": done, "processes": options.processes})
    with Pool(options.processes) as pool:
        while done < options.blocks:
            step = min(options.processes, options.blocks - done)
            inside += sum(pool.map(count_inside, range(done, done + step)))
            done += step
            save(options.checkpoint, {"done": done, "inside": inside, "starts": starts})
    print(f"π is about {4 * inside / (POINTS * options.blocks):.4f}; the starts were:")
    for start in starts:
        print(f"  after {start['done']} blocks, with {start['processes']} processes")


if __name__ == "__main__":
    main()
