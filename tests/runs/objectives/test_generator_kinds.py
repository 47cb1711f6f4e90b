"""Runs with generators that share or mix layers: resumed to the bit, exported, continued, and in two processes."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.callbacks import AtStep, CrashError, crash
from support.errors import notices
from support.toy import trace, weights
from transformers import AutoModel, AutoTokenizer, ElectraForMaskedLM, ElectraForPreTraining

import electra
from electra.data.shards import PreparedData
from electra.pretraining.build import build_model
from electra.pretraining.objectives.model import PretrainingModel
from electra.pretraining.run_directory import RunDirectory
from electra.text.tokenizer import load_tokenizer
from electra.train.checkpoint import Checkpoints

KINDS: dict[str, dict] = {
    "trunk": {"generator.tying": "trunk", "generator.size": 1.0, "generator.depth": 0.5},
    "disentangled": {"generator.tying": "disentangled"},
    "disentangled-token-prediction": {"generator.tying": "disentangled", "token_prediction.masked": 1.0},
    "layer-mixture": {"generator.kind": "layer-mixture"},
    "layer-mixture-of-a-trunk": {"generator.kind": "layer-mixture", "generator.tying": "trunk", "generator.size": 1.0},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Finished runs by kind, filled by the first test that needs one."""
    return {}


@pytest.fixture
def run(request: pytest.FixtureRequest, runs: dict, text: Path, tiny_run: dict, tmp_path_factory) -> tuple[str, Path]:
    """The name of a kind and a finished run of it."""
    name = request.param
    if name not in runs:
        runs[name] = tmp_path_factory.mktemp(name) / "run"
        electra.pretrain(str(text), out=str(runs[name]), **tiny_run, **KINDS[name])
    return name, runs[name]


def load_run(run: Path) -> PretrainingModel:
    """Load the model of a run's last checkpoint."""
    directory = RunDirectory(run)
    unigrams = torch.from_numpy(PreparedData.open(directory.data).unigrams)
    model = build_model(directory.load_config(), load_tokenizer(directory.tokenizer), unigrams)
    Checkpoints(directory.checkpoints, 3).restore(model)
    return model.eval()


@pytest.mark.slow
@pytest.mark.parametrize("run", KINDS, indirect=True)
def test_an_interrupted_run_ends_bit_for_bit_the_same(
    run: tuple[str, Path], text: Path, tmp_path: Path, tiny_run: dict
):
    name, finished = run
    out, options = str(tmp_path / "run"), tiny_run | KINDS[name]
    for step in (3, 7, 9):
        with pytest.raises(CrashError):
            electra.pretrain(str(text), out=out, callbacks=[AtStep(step, crash)], **options)
    electra.pretrain(str(text), out=out, **options)
    assert trace(tmp_path / "run") == trace(finished)
    assert weights(tmp_path / "run") == weights(finished)


@pytest.mark.slow
@pytest.mark.parametrize("run", KINDS, indirect=True)
@torch.no_grad()
def test_exported_networks_have_the_same_outputs(run: tuple[str, Path]) -> None:
    _, out = run
    model = load_run(out)
    inputs = AutoTokenizer.from_pretrained(out / "discriminator")(
        ["the cat sees [MASK] .", "the owl ."], padding=True, return_tensors="pt"
    )
    ids, types, mask = inputs["input_ids"], inputs["token_type_ids"], inputs["attention_mask"].bool()
    for name, cls in (("discriminator", ElectraForPreTraining), ("generator", ElectraForMaskedLM)):
        theirs, info = cls.from_pretrained(out / name, output_loading_info=True)
        assert not info["missing_keys"]
        logits = theirs.eval()(**inputs).logits[mask]
        everywhere = torch.arange(ids.shape[1]).expand_as(ids)
        ours = (
            model.target.network(ids, types, mask)
            if name == "discriminator"
            else model.generator(ids, types, mask, everywhere)
        )
        torch.testing.assert_close(ours[mask], logits, atol=1e-5, rtol=0)
        assert theirs.config.num_hidden_layers == len(
            (model.generator if name == "generator" else model.target.network).encoder.layers
        )
    assert electra.evaluate(str(out)) == pytest.approx(RunDirectory(out).load_summary()["heldout"], nan_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize("run", KINDS, indirect=True)
def test_checkpoints_store_shared_weights_once(run: tuple[str, Path]) -> None:
    _, out = run
    (*_, checkpoint) = sorted((out / "checkpoints").iterdir())
    saved = load_file(checkpoint / "model.safetensors")
    model = load_run(out)
    assert sum(tensor.numel() for tensor in saved.values()) == sum(p.numel() for p in {*model.parameters()})


@pytest.mark.slow
@pytest.mark.parametrize("run", KINDS, indirect=True)
def test_a_run_continues_from_its_networks(
    run: tuple[str, Path], text: Path, tmp_path: Path, tiny_run: dict, caplog
) -> None:
    """With a learning rate near 0 both networks keep the weights that --init gives them."""
    name, out = run
    own_sizes = {"model", "generator.size", "generator.depth"}
    options = {key: value for key, value in (tiny_run | KINDS[name]).items() if key not in own_sizes}
    options |= {"steps": 1, "optimizer.learning_rate": 1e-12}
    electra.pretrain(str(text), out=str(tmp_path / "more"), init=str(out), **options)
    assert not notices(caplog, "no-generator")
    for network in ("discriminator", "generator"):
        before, after = (load_file(path / network / "model.safetensors") for path in (out, tmp_path / "more"))
        assert before.keys() == after.keys()
        # A discriminator's head for token prediction is new in every run.
        own = [key for key in after if network == "generator" or "generator_" not in key]
        for key in own:
            torch.testing.assert_close(after[key], before[key], atol=1e-6, rtol=0, msg=key)


@pytest.mark.slow
def test_disentangled_embeddings_start_from_a_discriminator_alone(
    finished: Path, text: Path, tmp_path: Path, tiny_run: dict, caplog: pytest.LogCaptureFixture
) -> None:
    """The generator has the discriminator's embeddings, and the difference is zero."""
    options = tiny_run | KINDS["disentangled"] | {"steps": 1, "optimizer.learning_rate": 1e-12}
    electra.pretrain(str(text), out=str(tmp_path / "run"), init=str(finished / "discriminator"), **options)
    assert notices(caplog, "no-generator")
    before = load_file(finished / "discriminator/model.safetensors")
    for network in ("discriminator", "generator"):
        after = load_file(tmp_path / "run" / network / "model.safetensors")
        for key in [key for key in before if ".embeddings." in key]:
            torch.testing.assert_close(after[key], before[key], atol=1e-6, rtol=0)
    (*_, checkpoint) = sorted((tmp_path / "run/checkpoints").iterdir())
    delta = load_file(checkpoint / "model.safetensors")["target.network.encoder.embeddings.word.delta"]
    assert float(delta.abs().max()) < 1e-9
    AutoModel.from_pretrained(tmp_path / "run/generator")
