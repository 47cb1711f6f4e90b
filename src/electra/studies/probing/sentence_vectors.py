"""Sentence vectors of a frozen encoder: does their similarity order pairs of sentences as people do (STS-B)?"""

from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from electra.finetuning.classification.glue import load_glue_task
from electra.runtime.setup import RuntimeConfig, start_runtime
from electra.studies.probing.probe import compute_mean_states, load_frozen_encoder


def compute_similarity_scores(model: Path, glue: str, *, max_length: int, device: RuntimeConfig) -> list[float]:
    """Compare the cosine similarity of mean-pooled hidden states with the similarity of STS-B's dev pairs.

    Nothing is fitted, so that the score depends on the encoder alone.

    Args:
        model: Hugging Face directory.
        glue: Folder in GLUE's layout, or hf://nyu-mll/glue.
        max_length: Tokens of a sentence; the rest is cut.
        device: Device of the encoder.

    Returns:
        Spearman's correlation in percent, for the embeddings and each layer; 0 if all similarities are equal.

    Raises:
        DataError, ModelError: a file is missing or broken.
    """
    encoder, tokenizer = load_frozen_encoder(model)
    dev = load_glue_task("stsb", glue, tokenizer).read("dev")
    assert dev.second is not None
    assert dev.labels is not None
    with start_runtime(device) as runtime:
        encoder.to(runtime.device)
        first, second = (
            compute_mean_states(encoder, tokenizer, texts, max_length, runtime) for texts in (dev.first, dev.second)
        )
    scores = []
    for u, v in zip(first.astype(np.float64), second.astype(np.float64), strict=True):
        cosine = (u * v).sum(1) / (np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1))
        scores.append(100 * float(spearmanr(cosine, dev.labels).statistic) if np.ptp(cosine) else 0.0)
    return scores
