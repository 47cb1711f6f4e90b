"""The tag probe: its states equal Hugging Face's hidden states, and it finds information in neighboring words."""

from pathlib import Path

import numpy as np
import pytest
import torch
from support.errors import raises
from support.toy_tasks import save_model, write_conll, write_neighbors
from transformers import AutoModel

from electra.errors import DataError
from electra.finetuning.tagging.data import read_sentences
from electra.runtime.setup import Runtime, RuntimeConfig
from electra.studies.probing import tags
from electra.studies.probing.probe import load_frozen_encoder
from electra.studies.probing.tags import TagProbeScores, compute_word_states, probe_tags

CPU = Runtime(torch.device("cpu"), torch.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


def probe_toy_tags(model: Path, folder: Path) -> TagProbeScores:
    return probe_tags(model, str(folder), max_length=24, device=RuntimeConfig("cpu"))


@torch.no_grad()
def test_states_are_hugging_face_states_at_the_first_token_of_each_word(model: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the A\ncat,cat B\nlikes C\nmilk D\n\nan E\nowl F\n")
    encoder, tokenizer = load_frozen_encoder(model)
    states, tags, groups = compute_word_states(encoder, tokenizer, read_sentences(tmp_path / "a.txt"), 24, CPU)
    assert list(zip(tags, groups, strict=True)) == [("E", 1), ("F", 1), ("A", 0), ("B", 0), ("C", 0), ("D", 0)]
    theirs = AutoModel.from_pretrained(model).eval()
    expected = []
    for text, positions in (("an owl", [1, 2]), ("the cat , cat likes milk", [1, 2, 5, 6])):
        ids = [tokenizer.cls_id, *tokenizer.encode_lines([text])[0], tokenizer.sep_id]
        hidden = theirs(torch.tensor([ids]), output_hidden_states=True).hidden_states
        expected.append(torch.stack([layer[0, positions] for layer in hidden]))
    np.testing.assert_allclose(np.stack(states), torch.cat(expected, 1), atol=1e-5)


@pytest.mark.slow
def test_layers_encode_neighbors_and_embeddings_do_not(model: Path, tmp_path: Path) -> None:
    for split, number in (("train", 200), ("dev", 100)):
        write_neighbors(tmp_path / f"{split}.txt", number, seed=number)
    found = probe_toy_tags(model, tmp_path)
    assert found.layers[0] == pytest.approx(100 * (2 + 0.5) / 3, abs=5), "half of the last words are guessed"
    assert found.layer > 0
    assert found.layers[found.layer] > 99
    assert (found.split, len(found.layers)) == ("dev", 3)
    assert probe_toy_tags(model, tmp_path) == found


@pytest.mark.slow
def test_sentences_are_limited(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tags, "MAX_SENTENCES", 20)
    write_conll(tmp_path / "train.txt", 60, seed=1)
    write_conll(tmp_path / "test.txt", 30, seed=2)
    known, split, unknown = tags.read_tagged_splits(str(tmp_path))
    assert (len(known), split, len(unknown)) == (20, "test", 20)
    assert probe_toy_tags(model, tmp_path).split == "test"


def test_invalid_folders_raise(model: Path, tmp_path: Path) -> None:
    write_conll(tmp_path / "train.txt", 9, seed=1)
    with raises(DataError, "missing-split", tmp_path, "train"):
        probe_toy_tags(model, tmp_path)
    write_conll(tmp_path / "dev.txt", 9, seed=2, tags=False)
    with raises(DataError, "no-labels", "dev.txt:1"):
        probe_toy_tags(model, tmp_path)
    write_conll(tmp_path / "train.txt", 2, seed=1)
    write_conll(tmp_path / "dev.txt", 9, seed=2)
    with raises(DataError, "too-few-rows", "train.txt", 2, 3):
        probe_toy_tags(model, tmp_path)
    with raises(DataError, "missing", tmp_path / "elsewhere"):
        probe_toy_tags(model, tmp_path / "elsewhere")
