"""Settings for every test: one torch thread (on a busy machine many times faster for tiny models), no hub, no colour."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("MPLBACKEND", "Agg")

import torch

torch.set_num_threads(1)
