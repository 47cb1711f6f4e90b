"""Model directories of electra loaded by Hugging Face transformers, and the reverse: names of weights, and logits."""

import json
from pathlib import Path

import pytest
import torch
from support.errors import raises
from transformers import (
    AutoModel,
    BertConfig,
    BertForMaskedLM,
    ElectraConfig,
    ElectraForMaskedLM,
    ElectraForPreTraining,
)

from electra.errors import ModelError
from electra.model.architecture import ELECTRA
from electra.model.checkpoints import find_pretraining_heads, load_pretrained, save_pretrained
from electra.model.encoder import EncoderConfig
from electra.model.initialization import initialize
from electra.pretraining.objectives.networks import Discriminator, MaskedLM
from electra.pretraining.stages.warm_start import load_into

SAME = EncoderConfig(vocab_size=99, embedding_size=32, hidden_size=32, num_layers=2, num_heads=4, ffn_size=64)
PROJECTED = EncoderConfig(
    vocab_size=99,
    embedding_size=16,
    hidden_size=32,
    num_layers=3,
    num_heads=2,
    ffn_size=48,
    embedding_initializer_range=0.3,
)
NETWORKS = {"replaced-token": Discriminator, "masked-lm": MaskedLM}
CLASSES = {"replaced-token": ElectraForPreTraining, "masked-lm": ElectraForMaskedLM}


def network(head: str, config: EncoderConfig) -> torch.nn.Module:
    torch.manual_seed(1)
    module = NETWORKS[head](config).eval()
    initialize(module)
    for parameter in module.parameters():  # so that a bias or a norm that is not loaded changes the logits
        parameter.data += 0.1 * torch.randn_like(parameter)
    return module


def batch(padded: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    torch.manual_seed(2)
    ids, types = torch.randint(99, (3, 12)), torch.randint(2, (3, 12))
    mask = torch.arange(12) < torch.tensor([[12], [7], [1]])
    return ids, types, mask if padded else None


def ours(module: torch.nn.Module, inputs: tuple) -> torch.Tensor:
    if isinstance(module, Discriminator):
        return module(*inputs)
    everywhere = torch.arange(12).expand(3, 12)
    return module(*inputs, everywhere)


@pytest.mark.slow
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("config", [SAME, PROJECTED], ids=["E=H", "E!=H"])
@pytest.mark.parametrize("head", NETWORKS)
@torch.no_grad()
def test_transformers_reads_our_checkpoints(tmp_path: Path, head: str, config: EncoderConfig, padded: bool) -> None:
    module = network(head, config)
    save_pretrained(tmp_path, module.state_dict(), config, head, pad_id=0)
    theirs, info = CLASSES[head].from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    ids, types, mask = inputs = batch(padded)
    logits = theirs.eval()(ids, attention_mask=mask, token_type_ids=types).logits
    real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
    torch.testing.assert_close(ours(module, inputs)[real], logits[real], atol=1e-5, rtol=0)
    encoder = AutoModel.from_pretrained(tmp_path).eval()
    hidden = encoder(ids, attention_mask=mask, token_type_ids=types).last_hidden_state
    torch.testing.assert_close(module.encoder(*inputs)[real], hidden[real], atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("safe", [True, False], ids=["safetensors", "bin"])
@pytest.mark.parametrize("config", [SAME, PROJECTED], ids=["E=H", "E!=H"])
@pytest.mark.parametrize("head", NETWORKS)
@torch.no_grad()
def test_checkpoints_of_transformers_are_read(tmp_path: Path, head: str, config: EncoderConfig, safe: bool) -> None:
    theirs = CLASSES[head](
        ElectraConfig(**{hf: getattr(config, name) for name, hf in ELECTRA.config_names.items()})
    ).eval()
    theirs.save_pretrained(tmp_path)
    if not safe:
        torch.save(theirs.state_dict(), tmp_path / "pytorch_model.bin")
        (tmp_path / "model.safetensors").unlink()
    pretrained = load_pretrained(tmp_path)
    assert pretrained.config == config
    module = NETWORKS[head](config).eval()
    module.load_state_dict(pretrained.state(head))
    ids, types, mask = inputs = batch(True)
    logits = theirs(ids, attention_mask=mask, token_type_ids=types).logits
    torch.testing.assert_close(ours(module, inputs)[mask], logits[mask], atol=1e-5, rtol=0)


@pytest.mark.parametrize("where", ["first layer", "last layer"])
@torch.no_grad()
def test_comparison_detects_a_wrong_weight(tmp_path: Path, where: str) -> None:
    """Swapping the queries and keys of one layer changes the logits by more than the tolerance of the tests above."""
    module = network("replaced-token", PROJECTED)
    inputs = batch(False)
    before = ours(module, inputs)
    qkv = module.encoder.layers[0 if where == "first layer" else -1].attention.qkv
    q, k, v = qkv.bias.data.clone().chunk(3)
    qkv.bias.data = torch.cat([k, q, v])
    assert (ours(module, inputs) - before).abs().max() > 1e-4


def saved(directory: Path, head: str = "replaced-token") -> Path:
    save_pretrained(directory, network(head, SAME).state_dict(), SAME, head, 0)
    return directory


@pytest.mark.slow
@torch.no_grad()
def test_bert_of_transformers_is_read(tmp_path: Path) -> None:
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=40,
    )
    theirs = BertForMaskedLM(config).eval()
    for parameter in theirs.parameters():
        parameter += 0.1 * torch.randn_like(parameter)
    theirs.save_pretrained(tmp_path / "bert")
    assert find_pretraining_heads(tmp_path / "bert") == {"masked-lm"}
    pretrained = load_pretrained(tmp_path / "bert")
    assert pretrained.config.embedding_size == pretrained.config.hidden_size == 32
    module = MaskedLM(pretrained.config).eval()
    load_into(module, pretrained, "masked-lm")
    ids, types, mask = batch(padded=True)
    expected = theirs(ids, token_type_ids=types, attention_mask=mask).logits
    torch.testing.assert_close(ours(module, (ids, types, mask))[mask], expected[mask], rtol=1e-4, atol=1e-5)

    theirs.bert.save_pretrained(tmp_path / "bare")
    assert find_pretraining_heads(tmp_path / "bare") == set()
    encoder = load_pretrained(tmp_path / "bare").state("none")
    assert encoder.keys() == {name for name in module.state_dict() if name.startswith("encoder.")}
    assert torch.equal(
        encoder["encoder.layers.1.ffn.up.weight"], theirs.bert.encoder.layer[1].intermediate.dense.weight
    )


def test_untied_output_embeddings_are_rejected(tmp_path: Path) -> None:
    directory = saved(tmp_path, "masked-lm")
    pretrained = load_pretrained(directory)
    embeddings = pretrained.weights["electra.embeddings.word_embeddings.weight"]
    pretrained.weights["generator_lm_head.weight"] = embeddings.clone()
    assert pretrained.state("masked-lm")
    pretrained.weights["generator_lm_head.weight"] = embeddings + 1
    assert pretrained.state("none")
    with raises(ModelError, "untied-embeddings", directory):
        pretrained.state("masked-lm")


def test_missing_and_broken_files_are_rejected(tmp_path: Path) -> None:
    with raises(ModelError, "not-model", tmp_path / "nowhere", "config.json"):
        load_pretrained(tmp_path / "nowhere")
    directory = saved(tmp_path / "a")
    with raises(ModelError, "missing-weight", "'generator_predictions.dense.weight'", "ElectraForMaskedLM"):
        load_pretrained(directory).state("masked-lm")
    weights = (directory / "model.safetensors").read_bytes()
    (directory / "model.safetensors").write_bytes(weights[:500])
    with raises(ModelError, "unreadable", directory / "model.safetensors"):
        load_pretrained(directory)
    (directory / "model.safetensors").unlink()
    with raises(ModelError, "missing-weights", directory, "model.safetensors", "pytorch_model.bin"):
        load_pretrained(directory)


def test_other_architectures_are_rejected(tmp_path: Path) -> None:
    directory = saved(tmp_path)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"model_type": "gpt2"}))
    with raises(ModelError, "unknown-model-type", "'gpt2'", "'electra' or 'bert'"):
        load_pretrained(directory)
    (directory / "config.json").write_text(json.dumps(config | {"position_embedding_type": "relative_key"}))
    with raises(ModelError, "unknown-positions", "'relative_key'"):
        load_pretrained(directory)
    (directory / "config.json").write_text(json.dumps(config | {"hidden_act": "relu"}))
    with raises(ModelError, "unknown-activation", "'relu'"):
        load_pretrained(directory)
    (directory / "config.json").write_text("{")
    with raises(ModelError, "not-json", directory / "config.json:1"):
        load_pretrained(directory)


def test_objects_are_not_unpickled(tmp_path: Path) -> None:
    directory = saved(tmp_path)
    (directory / "model.safetensors").unlink()
    torch.save({"weight": Path("anything but a tensor")}, directory / "pytorch_model.bin")
    with raises(ModelError, "foreign-objects", directory / "pytorch_model.bin"):
        load_pretrained(directory)
