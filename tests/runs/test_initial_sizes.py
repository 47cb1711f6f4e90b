"""A run that continues a model takes its sizes; sizes that were asked for and differ are refused."""

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import electra
from electra import cli
from electra.errors import ElectraError, ModelError, UsageError
from electra.model.architecture import ELECTRA
from electra.model.checkpoints import load_config
from electra.model.encoder import EncoderConfig
from electra.pretraining import run
from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.networks import GeneratorConfig, compute_generator_sizes
from electra.pretraining.warm_start import SIZES, check_sizes, read_initial_sizes


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> list[PretrainConfig]:
    """The configurations that `pretrain` is called with, instead of running them."""
    seen: list[PretrainConfig] = []
    monkeypatch.setattr(run, "pretrain", lambda config, out, callbacks: seen.append(config) or {})
    return seen


def write_config(directory: Path, sizes: EncoderConfig) -> None:
    """A model directory without weights."""
    directory.mkdir(parents=True, exist_ok=True)
    config = {theirs: getattr(sizes, ours) for ours, theirs in ELECTRA.config_names.items()}
    (directory / "config.json").write_text(json.dumps({"model_type": "electra", **config}))


def test_sizes_come_from_what_is_continued(finished: Path, resolved: list[PretrainConfig], tmp_path: Path) -> None:
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


def test_sizes_in_a_file_and_options_that_differ_are_refused(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"init: {finished}\nmodel: {{hidden_size: 64}}\nseq_len: 16\n")
    for words in (["--config", str(file)], ["--init", str(finished), "--seq-len", "16", "--model.hidden-size", "64"]):
        with pytest.raises(SystemExit):
            cli.main(["pretrain", "a", "--out", str(tmp_path / "r"), *words])
        assert (
            "other sizes: hidden_size 16 (the model has 64); try --model.hidden-size 16, or leave such options out"
            in capsys.readouterr().err
        )
    with pytest.raises(
        ModelError, match=r"hidden_size 8 \(the model has 4\), .*; try --generator.size 0.5 .*, or leave"
    ):
        electra.pretrain("a", init=str(finished), out=str(tmp_path / "r"), seq_len=16, generator={"size": 0.25})
    with pytest.raises(UsageError, match="--seq-len 128 is more than the 32 positions of the model; lower it$"):
        electra.pretrain("a", init=str(finished), out=str(tmp_path / "r"))


@pytest.mark.slow
def test_a_run_without_a_word_of_sizes(finished: Path, text: Path, tmp_path: Path, tiny_run: dict) -> None:
    options = {name: value for name, value in tiny_run.items() if name != "model"} | {"steps": 2, "seq_len": 20}
    for name in ("one", "again"):
        electra.pretrain(str(text), out=str(tmp_path / name), init=str(finished), **options)
    assert load_config(tmp_path / "one/generator").hidden_size == 8
    config = json.loads((tmp_path / "one/discriminator/config.json").read_text())
    assert config["pretrained_length"] == 24, "what it continues was trained on longer sequences"
    summary = electra.pretrain(str(text), out=str(tmp_path / "one"), init=str(finished), **options)
    assert summary["step"] == 2, "the same call finds it finished"


@pytest.mark.slow
def test_nothing_is_known_of_the_length_of_other_peoples_models(
    finished: Path, text: Path, tmp_path: Path, tiny_run: dict
) -> None:
    init = shutil.copytree(finished / "discriminator", tmp_path / "init")
    config = json.loads((init / "config.json").read_text())
    del config["pretrained_length"]
    (init / "config.json").write_text(json.dumps(config))
    electra.pretrain(str(text), out=str(tmp_path / "run"), init=str(init), **tiny_run | {"steps": 2})
    assert "pretrained_length" not in json.loads((tmp_path / "run/discriminator/config.json").read_text())


def test_any_generator(tmp_path: Path) -> None:
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


def test_a_generator_with_embeddings_of_its_own(tmp_path: Path) -> None:
    main = EncoderConfig()
    config = GeneratorConfig(size=0.25, tying="none")
    write_config(tmp_path / "discriminator", main)
    write_config(tmp_path / "generator", compute_generator_sizes(main, config))
    found = read_initial_sizes(tmp_path)
    assert found["generator.tying"] == "none"
    assert {"generator.heads", "generator.ffn"}.isdisjoint(found)


def test_no_model(tmp_path: Path) -> None:
    with pytest.raises(ElectraError, match="no: not a model directory \\(no such file or directory\\)"):
        electra.pretrain("a", init=str(tmp_path / "no"), out=str(tmp_path / "r"))
