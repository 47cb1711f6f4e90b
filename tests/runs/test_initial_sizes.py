"""A run with --init has the sizes of that model; options with other sizes are rejected."""

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.errors import fails, raises

import electra
from electra import cli
from electra.errors import ModelError, UsageError
from electra.model.architecture import ELECTRA
from electra.model.checkpoints import load_config
from electra.model.encoder import EncoderConfig
from electra.pretraining import run
from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.networks import GeneratorConfig, compute_generator_sizes
from electra.pretraining.stages.initial_model import find_initial_model
from electra.pretraining.stages.initial_sizes import SIZES, check_sizes, convert_to_options


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> list[PretrainConfig]:
    """Record the configurations that `pretrain` is called with, instead of running them."""
    seen: list[PretrainConfig] = []
    monkeypatch.setattr(run, "pretrain", lambda config, out, callbacks: seen.append(config) or {})
    return seen


def read_initial_sizes(model: Path) -> dict:
    """Read the options for the sizes of a model."""
    found = find_initial_model(str(model))
    assert found.generator is not None
    return convert_to_options(found.main.config, found.generator.config)


def write_config(directory: Path, sizes: EncoderConfig) -> None:
    """Write a model directory without weights."""
    directory.mkdir(parents=True, exist_ok=True)
    config = {theirs: getattr(sizes, ours) for ours, theirs in ELECTRA.config_names.items()}
    (directory / "config.json").write_text(json.dumps({"model_type": "electra", **config}))


def test_sizes_are_those_of_the_initial_model(finished: Path, resolved: list[PretrainConfig], tmp_path: Path) -> None:
    words = ["pretrain", "a", "--init", str(finished), "--out", str(tmp_path / "r"), "--seq-len", "16"]
    cli.main(words)
    cli.main([*words, "--preset", "base", "--steps", "5"])
    electra.pretrain("a", init=str(finished), out=str(tmp_path / "r"), seq_len=16)
    main, generator = (load_config(finished / name) for name in ("discriminator", "generator"))
    for config in resolved:
        assert [getattr(config.model, name) for name in SIZES] == [getattr(main, name) for name in SIZES]
        check_sizes(finished, generator, compute_generator_sizes(config.model, config.generator), relative_to=main)
        assert config.seq_len == 16
    assert resolved[0] == resolved[2]
    assert (resolved[1].preset, resolved[1].steps) == ("base", 5)


def test_other_sizes_in_a_file_or_in_options_are_rejected(finished: Path, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"init: {finished}\nmodel: {{hidden_size: 64}}\nseq_len: 16\n")
    for words in (["--config", str(file)], ["--init", str(finished), "--seq-len", "16", "--model.hidden-size", "64"]):
        values = ["hidden_size 16", " 64)", "--model.hidden-size 16"]
        fails(["pretrain", "a", "--out", tmp_path / "r", *words], "other-sizes", *values)
    with raises(ModelError, "other-sizes", "hidden_size 8", " 4)", "--generator.size 0.5"):
        electra.pretrain("a", init=str(finished), out=str(tmp_path / "r"), seq_len=16, generator={"size": 0.25})
    with raises(UsageError, "longer-than-model", "--seq-len 128", " 32 ", "--model.max-positions"):
        electra.pretrain("a", init=str(finished), out=str(tmp_path / "r"))


@pytest.mark.slow
def test_a_run_without_options_of_sizes(finished: Path, text: Path, tmp_path: Path, tiny_run: dict) -> None:
    options = {name: value for name, value in tiny_run.items() if name != "model"} | {"steps": 2, "seq_len": 20}
    for name in ("one", "again"):
        electra.pretrain(str(text), out=str(tmp_path / name), init=str(finished), **options)
    assert load_config(tmp_path / "one/generator").hidden_size == 8
    config = json.loads((tmp_path / "one/discriminator/config.json").read_text())
    assert config["pretrained_length"] == 24, "the initial model was trained on longer sequences"
    summary = electra.pretrain(str(text), out=str(tmp_path / "one"), init=str(finished), **options)
    assert summary["step"] == 2, "the same call returns the summary of the finished run"


@pytest.mark.slow
def test_the_length_of_pretraining_stays_unknown(finished: Path, text: Path, tmp_path: Path, tiny_run: dict) -> None:
    init = shutil.copytree(finished / "discriminator", tmp_path / "init")
    config = json.loads((init / "config.json").read_text())
    del config["pretrained_length"]
    (init / "config.json").write_text(json.dumps(config))
    electra.pretrain(str(text), out=str(tmp_path / "run"), init=str(init), **tiny_run | {"steps": 2})
    assert "pretrained_length" not in json.loads((tmp_path / "run/discriminator/config.json").read_text())


def test_sizes_of_random_generators(tmp_path: Path) -> None:
    draw = random.Random(0)

    def drawn() -> dict[str, int]:
        heads = draw.randint(1, 16)
        width = heads * draw.randint(1, 64)
        return {
            "hidden_size": width,
            "num_heads": heads,
            "num_layers": draw.randint(1, 24),
            "ffn_size": draw.randint(1, 5000),
        }

    for _ in range(300):
        main = EncoderConfig(**drawn())
        generator = replace(main, **drawn())
        write_config(tmp_path / "discriminator", main)
        write_config(tmp_path / "generator", generator)
        found = read_initial_sizes(tmp_path).items()
        multipliers = {name.removeprefix("generator."): each for name, each in found if name.startswith("generator.")}
        assert compute_generator_sizes(main, GeneratorConfig(**multipliers)) == generator


def test_a_generator_with_separate_embeddings(tmp_path: Path) -> None:
    main = EncoderConfig()
    config = GeneratorConfig(size=0.25, tying="none")
    write_config(tmp_path / "discriminator", main)
    write_config(tmp_path / "generator", compute_generator_sizes(main, config))
    found = read_initial_sizes(tmp_path)
    assert found["generator.tying"] == "none"
    assert {"generator.heads", "generator.ffn"}.isdisjoint(found)


def test_missing_model_is_rejected(tmp_path: Path) -> None:
    with raises(ModelError, "missing", f"{tmp_path / 'no'}: ", "owner/name"):
        electra.pretrain("a", init=str(tmp_path / "no"), out=str(tmp_path / "r"))
