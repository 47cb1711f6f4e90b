"""A discriminator and a generator from two places, and more positions than the initial model has."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.errors import fails, notices
from support.toy import TINY_RUN
from support.toy_tasks import TINY, save_model, toy_tokenizer
from transformers import BertConfig, BertForMaskedLM, ElectraForMaskedLM, ElectraForPreTraining

import electra

OPTIONS = {name: value for name, value in TINY_RUN.items() if name != "model"}
OPTIONS |= {"steps": 1, "seq_len": 16, "optimizer.learning_rate": 1e-12}
"""Weights stay those that a run starts from."""
POSITIONS = "electra.embeddings.position_embeddings.weight"


@pytest.fixture(scope="module")
def main(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A discriminator of 2 layers of 32, embeddings of 16."""
    return save_model(tmp_path_factory.mktemp("main"))


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of half the width with the same vocabulary."""
    folder = tmp_path_factory.mktemp("bert")
    sizes = {"hidden_size": 16, "num_attention_heads": 1, "intermediate_size": 32, "max_position_embeddings": 64}
    torch.manual_seed(1)
    network = BertForMaskedLM(BertConfig(vocab_size=TINY.vocab_size, num_hidden_layers=2, pad_token_id=0, **sizes))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    network.save_pretrained(folder)
    toy_tokenizer().save(folder)
    return folder


@torch.no_grad()
def assert_equal(ours: torch.nn.Module, theirs: torch.nn.Module) -> None:
    ids = torch.randint(5, TINY.vocab_size, (3, 12), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ours.eval()(ids).logits, theirs.eval()(ids).logits, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_networks_of_two_places(main: Path, bert: Path, text: Path, tmp_path: Path, caplog) -> None:
    out = tmp_path / "run"
    start = {"init": str(main), "init_generator": str(bert)}
    electra.pretrain(str(text), out=str(out), **start, **OPTIONS | {"generator.tying": "none"})
    assert_equal(
        ElectraForPreTraining.from_pretrained(out / "discriminator"), ElectraForPreTraining.from_pretrained(main)
    )
    assert_equal(ElectraForMaskedLM.from_pretrained(out / "generator"), BertForMaskedLM.from_pretrained(bert))
    assert notices(caplog, "other-embeddings") == []
    assert f"generator initialized from | {bert.name}" in (out / "discriminator/README.md").read_text()
    # A run is a source too: its generator is used. Embeddings that are shared are the discriminator's.
    electra.pretrain(str(text), out=str(tmp_path / "again"), init=str(main), init_generator=str(out), **OPTIONS)
    (notice,) = notices(caplog, "other-embeddings")
    assert "--generator.tying none" in notice
    words = "electra.embeddings.word_embeddings.weight"
    shared = load_file(tmp_path / "again/generator/model.safetensors")[words]
    torch.testing.assert_close(shared, load_file(main / "model.safetensors")[words], atol=1e-6, rtol=0)


def test_generators_that_cannot_be_used(main: Path, bert: Path, tmp_path: Path) -> None:
    def copy(name: str) -> Path:
        return shutil.copytree(bert, tmp_path / name)

    words = ["pretrain", tmp_path, "--out", tmp_path / "run", "--init", main, "--seq-len", "16", "--init-generator"]
    other = copy("other")
    (other / "tokenizer.json").unlink()
    tokens = (bert / "vocab.txt").read_text()
    (other / "vocab.txt").write_text(tokens.replace("\ncat\ndog\n", "\ndog\ncat\n"))
    fails([*words, other], "other-vocabulary", other, main, 31, "'dog'", "'cat'")
    (other / "vocab.txt").unlink()
    fails([*words, other], "no-tokenizer", other)
    fails([*words, main], "not-masked-lm", main)
    roberta = copy("roberta")
    config = json.loads((bert / "config.json").read_text())
    (roberta / "config.json").write_text(json.dumps(config | {"model_type": "roberta"}))
    fails([*words, roberta], "unknown-model-type", roberta, "roberta")
    fails([*words, tmp_path / "nowhere"], "missing", tmp_path / "nowhere")
    fails([*words, bert, "--generator.size", "0.25"], "other-sizes", bert, "--generator.size 0.5")
    fails([*words, bert, "--generator.kind", "unigram"], "conflicting-options", bert, "unigram")
    without = ["pretrain", tmp_path, "--out", tmp_path / "run", "--init-generator", bert]
    fails(without, "conflicting-options", "--init")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("longer", [{"model.max_positions": 50}, {"seq_len": 50}], ids=["positions", "length"])
def test_more_positions(longer: dict, finished: Path, text: Path, tmp_path: Path, caplog) -> None:
    options = {name: value for name, value in OPTIONS.items() if name != "seq_len"} | {"seq_len": 24} | longer
    electra.pretrain(str(text), out=str(tmp_path / "run"), init=str(finished), **options)
    assert len(notices(caplog, "new-positions")) == 1
    for name in ("discriminator", "generator"):
        before, after = (load_file(run / name / "model.safetensors")[POSITIONS] for run in (finished, tmp_path / "run"))
        assert (len(before), len(after)) == (32, 50)
        torch.testing.assert_close(after, torch.cat([before, before[:18]]), atol=1e-6, rtol=0)
        config = json.loads((tmp_path / "run" / name / "config.json").read_text())
        assert config["max_position_embeddings"] == 50
    again = electra.pretrain(out=str(tmp_path / "run"))
    assert again["step"] == 1


@pytest.mark.slow
def test_fewer_positions_are_refused(finished: Path, tmp_path: Path) -> None:
    words = ["pretrain", tmp_path, "--out", tmp_path / "run", "--init", finished, "--seq-len", "16"]
    fails([*words, "--model.max-positions", "20"], "other-sizes", "max_positions 32", "--model.max-positions 32")
