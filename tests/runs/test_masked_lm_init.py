"""ELECTRA from an existing masked language model: as --init, or as the first stage of a run."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.callbacks import AtStep, CrashError, crash
from support.errors import notices, raises
from support.toy import TINY_RUN, trace, weights
from transformers import BertConfig, BertForMaskedLM, ElectraForMaskedLM, ElectraForPreTraining

import electra
from electra.errors import ModelError, UsageError
from electra.model.checkpoints import load_pretrained
from electra.pretraining.config import PretrainConfig, load_saved_config
from electra.pretraining.stages.procedures import PROCEDURES
from electra.studies.compute import compute_step_flops
from electra.train.callbacks import Callback
from electra.train.checkpoint import TrainingState

STILL = {"steps": 1, "optimizer.learning_rate": 1e-12}
"""Weights stay those that a run starts from."""
SAME_SIZE = {"generator.size": 1.0, "generator.depth": 1.0}
SIZES = {name: value for name, value in TINY_RUN.items() if name != "model"}
"""A run with the sizes of --init."""


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory, finished: Path) -> Path:
    """A BERT of transformers, whose vocabulary is padded beyond the tokenizer's."""
    folder = tmp_path_factory.mktemp("bert")
    shutil.copy(finished / "tokenizer/vocab.txt", folder)
    words = len((folder / "vocab.txt").read_text().splitlines())
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=words + 3,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        pad_token_id=0,
    )
    model = BertForMaskedLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def masked_lm(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Path:
    """A run of objective mlm."""
    out = tmp_path_factory.mktemp("mlm") / "run"
    electra.pretrain(str(text), out=str(out), objective="mlm", **TINY_RUN)
    return out


class Stages(Callback):
    """Keeps the weights at the start of each stage."""

    def __init__(self) -> None:
        self.starts: list[dict[str, torch.Tensor]] = []

    def on_train_begin(self, module: torch.nn.Module, state: TrainingState) -> None:
        self.starts.append({name: tensor.clone() for name, tensor in module.state_dict().items()})


@torch.no_grad()
def compute_outputs(networks: Sequence[torch.nn.Module]) -> list[torch.Tensor]:
    """Compute the hidden states or logits of networks of transformers on the same input."""
    ids = torch.randint(5, 60, (3, 12), generator=torch.Generator().manual_seed(0))
    outputs = [network.eval()(ids) for network in networks]
    return [output.logits if "logits" in output else output.last_hidden_state for output in outputs]


@pytest.mark.slow
@pytest.mark.parametrize("tying", ["embeddings", "none", "all", "disentangled"])
def test_both_networks_start_from_a_bert(
    tying: str, bert: Path, text: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = SIZES | STILL | SAME_SIZE | {"generator.tying": tying}
    electra.pretrain(str(text), out=str(tmp_path / "run"), init=str(bert), **options)
    assert [str(bert) in notice for notice in notices(caplog, "warm-start")] == [True, True]
    theirs = BertForMaskedLM.from_pretrained(bert)
    ours = ElectraForPreTraining.from_pretrained(tmp_path / "run/discriminator").electra
    torch.testing.assert_close(*compute_outputs([ours, theirs.bert]), atol=1e-5, rtol=0)
    logits = compute_outputs([ElectraForMaskedLM.from_pretrained(tmp_path / "run/generator"), theirs])
    torch.testing.assert_close(logits[0], logits[1][..., : logits[0].shape[-1]], atol=1e-5, rtol=0)
    config = json.loads((tmp_path / "run/discriminator/config.json").read_text())
    assert (config["model_type"], config["embedding_size"]) == ("electra", 16)
    vocabulary = (bert / "vocab.txt").read_text()
    assert (tmp_path / "run/discriminator/vocab.txt").read_text() == vocabulary


@pytest.mark.slow
def test_small_generator_is_new(bert: Path, text: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    electra.pretrain(str(text), out=str(tmp_path / "run"), init=str(bert), **SIZES | STILL)
    (notice,) = notices(caplog, "no-generator")
    assert str(bert) in notice
    generator = load_file(tmp_path / "run/generator/model.safetensors")
    words = load_file(bert / "model.safetensors")["bert.embeddings.word_embeddings.weight"]
    shared = generator["electra.embeddings.word_embeddings.weight"]
    torch.testing.assert_close(shared, words[: len(shared)], atol=1e-6, rtol=0)
    assert generator["electra.encoder.layer.0.intermediate.dense.weight"].shape == (16, 8)


@pytest.mark.slow
def test_start_from_a_run_of_objective_mlm(masked_lm: Path, text: Path, tmp_path: Path) -> None:
    electra.pretrain(str(text), out=str(tmp_path / "run"), init=str(masked_lm), **SIZES | STILL | SAME_SIZE)
    theirs = ElectraForMaskedLM.from_pretrained(masked_lm / "masked_lm")
    generator = ElectraForMaskedLM.from_pretrained(tmp_path / "run/generator")
    torch.testing.assert_close(*compute_outputs([generator, theirs]), atol=1e-5, rtol=0)
    discriminator = ElectraForPreTraining.from_pretrained(tmp_path / "run/discriminator")
    torch.testing.assert_close(*compute_outputs([discriminator.electra, theirs.electra]), atol=1e-5, rtol=0)


@pytest.mark.slow
def test_unreadable_berts_are_refused_before_the_text_is_read(bert: Path, text: Path, tmp_path: Path) -> None:
    def changed(name: str, **config: object) -> Path:
        folder = shutil.copytree(bert, tmp_path / name)
        values = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(values | config))
        return folder

    untied = changed("untied")
    tensors = load_file(untied / "model.safetensors")
    words = tensors["bert.embeddings.word_embeddings.weight"]
    save_file(tensors | {"cls.predictions.decoder.weight": words + 1}, untied / "model.safetensors", {"format": "pt"})
    headless = changed("headless")
    bare = {name: tensor for name, tensor in tensors.items() if name.startswith("bert.")}
    save_file(bare, headless / "model.safetensors", {"format": "pt"})
    cases = [
        (untied, "untied-embeddings"),
        (headless, "no-head"),
        (changed("relative", position_embedding_type="relative_key"), "unknown-positions"),
        (changed("roberta", model_type="roberta"), "unknown-model-type"),
    ]
    for folder, code in cases:
        with raises(ModelError, code, folder):
            electra.pretrain(str(text), out=str(tmp_path / "run"), init=str(folder), **SIZES)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_masked_lm_first_with_a_frozen_generator_equals_two_stages(text: Path, tmp_path: Path) -> None:
    masks = {"masking.mlm_mask": 0.85, "masking.mlm_random": 0.0}  # those of a generator's input
    frozen = {"generator.training": "frozen", "generator.tying": "none", **masks}
    for procedure, options in (("two-stage", {}), ("masked-lm-first", frozen)):
        out = str(tmp_path / procedure)
        electra.pretrain(str(text), out=out, procedure=procedure, **TINY_RUN, **SAME_SIZE, **options)
    for stage in ("", "first-stage"):
        assert trace(tmp_path / "two-stage" / stage) == trace(tmp_path / "masked-lm-first" / stage)
    assert weights(tmp_path / "two-stage") == weights(tmp_path / "masked-lm-first")


@pytest.mark.slow
@pytest.mark.parametrize(
    "generator",
    [
        {},
        SAME_SIZE,
        {"generator.tying": "trunk", "generator.size": 1.0, "generator.depth": 0.5},
        {"generator.tying": "disentangled"},
        {"generator.kind": "unigram"},
    ],
    ids=["small", "same size", "trunk", "disentangled", "unigram"],
)
def test_masked_lm_first_starts_the_second_stage(generator: dict, text: Path, tmp_path: Path) -> None:
    """Its discriminator has the encoder of the first stage, and a generator of the discriminator's size has all of it."""
    stages, out = Stages(), tmp_path / "run"
    options = TINY_RUN | {"procedure": "masked-lm-first", "stage_one_share": 0.75} | generator
    summary = electra.pretrain(str(text), out=str(out), callbacks=[stages], **options)
    assert (json.loads((out / "first-stage/summary.json").read_text())["step"], summary["step"]) == (9, 12)
    trained = load_pretrained(out / "first-stage/masked_lm").state("masked-lm")
    _, second = stages.starts
    ours = {name: tensor for name, tensor in second.items() if name.startswith("target.network.encoder.")}
    assert len(ours) == sum(name.startswith("encoder.") for name in trained)
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, trained[name.removeprefix("target.network.")], atol=1e-6, rtol=0)
    if generator == SAME_SIZE:
        for name, tensor in trained.items():
            assert torch.equal(second[f"corruption.generator.{name}"], tensor), name


@pytest.mark.slow
@pytest.mark.parametrize("stage", [0, 1])
def test_masked_lm_first_is_resumed_in_either_stage(stage: int, text: Path, tmp_path: Path) -> None:
    options = TINY_RUN | {"procedure": "masked-lm-first", "generator.tying": "disentangled", "stage_one_share": 0.5}
    electra.pretrain(str(text), out=str(tmp_path / "whole"), **options)
    seen = []

    def crash_in_stage(module: torch.nn.Module) -> None:
        seen.append(module)
        if len(seen) == stage + 1:
            crash(module)

    with pytest.raises(CrashError):
        electra.pretrain(str(text), out=str(tmp_path / "run"), callbacks=[AtStep(5, crash_in_stage)], **options)
    electra.pretrain(str(text), out=str(tmp_path / "run"), **options)
    assert trace(tmp_path / "run") == trace(tmp_path / "whole")
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


@pytest.mark.slow
def test_share_of_the_first_stage(text: Path, tmp_path: Path) -> None:
    """Of steps or FLOPs; the stages read the text in different orders."""
    options = TINY_RUN | {
        "procedure": "two-stage-scratch",
        "stage_one_share": 0.25,
        "length_warmup": {"steps": 4, "length": 8},
    }
    whole = electra.pretrain(str(text), out=str(tmp_path / "steps"), **options)
    first = json.loads((tmp_path / "steps/first-stage/summary.json").read_text())
    assert (first["step"], whole["step"]) == (3, 12)
    one, two = (load_saved_config(tmp_path / "steps" / stage / "config.yaml") for stage in ("first-stage", "."))
    assert one.length_warmup.steps == 1
    assert one.stage_one_share is None
    assert one.recipe().seed != two.recipe().seed
    by_flops = {name: value for name, value in options.items() if name != "steps"} | {"flops": whole["flops"]}
    spent = electra.pretrain(str(text), out=str(tmp_path / "flops"), **by_flops)["flops"]
    of_first = json.loads((tmp_path / "flops/first-stage/summary.json").read_text())["flops"]
    assert of_first / spent == pytest.approx(0.25, abs=0.05)
    assert spent == pytest.approx(whole["flops"], rel=0.2)
    with raises(UsageError, "too-few-steps", "--steps is 3", "--stage-one-share 0.1"):
        electra.pretrain(str(text), out=str(tmp_path / "few"), **options | {"steps": 3, "stage_one_share": 0.1})


def test_flops_of_an_update_are_the_mean_over_both_stages() -> None:
    def compute(**options: object) -> float:
        return compute_step_flops(PretrainConfig(**options))

    joint, mlm = compute(), compute(objective="mlm")
    for share in (None, 0.25, 0.75):
        expected = (share or 0.5) * mlm + (1 - (share or 0.5)) * joint
        assert compute(procedure="masked-lm-first", stage_one_share=share) == pytest.approx(expected)
    assert {name for name, row in PROCEDURES.items() if row.stage_one is None} == {"joint"}
