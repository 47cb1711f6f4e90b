"""Checkpoints of the original TensorFlow code, whose names and transposed kernels follow from Hugging Face's by rule."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor


def tf_to_hf(variables: Mapping[str, np.ndarray], network: str) -> dict[str, Tensor]:
    """Variables of an original TensorFlow checkpoint under Hugging Face's names.

    `network` is "electra" (the discriminator) or "generator"; the generator's embeddings are the discriminator's.
    Optimizer slots and the other network are left out. Kernels are stored [in, out] there, so they are transposed.
    """
    head = "discriminator_predictions" if network == "electra" else "generator_predictions"
    weights = {}
    for name, value in variables.items():
        scope, *path = name.split("/")
        shared = (
            scope == "electra" and path[0] == "embeddings" and "generator/embeddings/word_embeddings" not in variables
        )
        if path[-1] in ("adam_m", "adam_v") or not (scope in (network, head) or shared):
            continue
        weights[tf_name_to_hf(name)] = torch.from_numpy(value.T.copy() if path[-1] == "kernel" else value)
    return weights


def tf_name_to_hf(name: str) -> str:
    """One variable's name: `electra/encoder/layer_0/output/dense/kernel` -> `electra.encoder.layer.0.output.dense.weight`."""
    if name == "generator_predictions/output_bias":
        return "generator_lm_head.bias"
    name = name.removeprefix("generator/") if name.startswith("generator/") else name.removeprefix("electra/")
    parts = ["dense_prediction" if part == "dense_1" else part.replace("layer_", "layer.") for part in name.split("/")]
    last = {"kernel": "weight", "gamma": "weight", "beta": "bias", "bias": "bias"}.get(parts[-1])
    parts = [*parts, "weight"] if last is None else [*parts[:-1], last]
    return ".".join(parts if parts[0].endswith("_predictions") else ["electra", *parts])
