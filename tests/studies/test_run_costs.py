"""`electra flops`: the counts equal those of the training loop, the sizes those of the paper."""

from dataclasses import replace

import pytest
import torch
from support.errors import fails

import electra
from electra import cli
from electra.presets import PRESETS, small
from electra.pretraining.build import build_meta_model, build_model
from electra.pretraining.objectives.catalog import OBJECTIVES
from electra.pretraining.objectives.networks import GeneratorConfig
from electra.studies.paper.run_costs import count_costs, format_flops
from electra.text.tokenizer import SPECIAL_TOKENS, Normalization, Tokenizer


def test_counts_equal_the_training_loops() -> None:
    """A run trains the model of `build_model` and reports its `row_flops`."""
    config = PRESETS["tiny"]()
    words = (f"w{i}" for i in range(config.model.vocab_size - len(SPECIAL_TOKENS)))
    trained = build_model(config, Tokenizer((*SPECIAL_TOKENS, *words), Normalization()), torch.ones(2_048).long())
    counted = count_costs(config)
    assert counted["train_flops"] == config.steps * config.training.batch_size * trained.row_flops(config.seq_len)
    assert counted["parameters"]["all"] == sum(p.numel() for p in trained.parameters())
    shapes = build_meta_model(config)
    assert {name: p.shape for name, p in shapes.named_parameters()} == {
        name: p.shape for name, p in trained.named_parameters()
    }
    assert {p.device.type for p in shapes.parameters()} == {"meta"}, "counting allocates no memory"


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("preset", PRESETS)
def test_parts_and_directions_sum_to_the_total(preset: str, objective: str) -> None:
    config = PRESETS[preset]()
    masking = replace(config.masking, strategy="uniform")  # noise with known probabilities needs single tokens
    counted = count_costs(replace(config, objective=objective, masking=masking))
    row = sum(sum(parts.values()) for parts in counted["networks"].values())
    assert counted["forward_flops"] == counted["backward_flops"] == counted["batch_size"] * row
    assert counted["train_flops"] == 2 * counted["steps"] * counted["forward_flops"]
    sizes = counted["parameters"]
    assert sizes["main encoder"] + sizes["other"] == sizes["all"]


def test_frozen_generator_has_no_backward_flops() -> None:
    counted = count_costs(replace(small(), generator=GeneratorConfig(training="frozen", tying="none")))
    spared = counted["batch_size"] * sum(counted["networks"]["generator"].values())
    assert counted["backward_flops"] == counted["forward_flops"] - spared > 0


@pytest.mark.parametrize(("preset", "millions"), {"small": 14, "base": 110, "large": 335}.items())
def test_parameters_equal_the_papers(preset: str, millions: int) -> None:
    """The paper's 14M, 110M and 335M."""
    size = count_costs(PRESETS[preset]())["parameters"]["main encoder"]
    assert size / 1e6 == pytest.approx(millions, abs=0.6)


def test_counting_leaves_the_random_state_unchanged() -> None:
    before = torch.get_rng_state()
    electra.flops(preset="tiny")
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.slow
def test_options_change_the_counts() -> None:
    default = electra.flops()
    assert default == electra.flops(preset="small") == count_costs(small())
    double = electra.flops(steps=2_000_000, batch_size=256)
    assert double["train_flops"] == 4 * default["train_flops"]
    longer = electra.flops(seq_len=512)
    assert (longer["seq_len"], longer["masked"]) == (512, 77)
    assert longer["train_flops"] > 4 * default["train_flops"], "attention grows with the square"
    bert = electra.flops(objective="mlm")
    assert list(bert["networks"]) == ["main encoder"]
    assert bert["train_flops"] < default["train_flops"]
    assert bert["parameters"]["other"] == 0


@pytest.mark.slow
def test_printed_output(capsys: pytest.CaptureFixture) -> None:
    cli.main(["flops", "--preset", "base", "--steps", "1e6"])
    shown = capsys.readouterr().out
    counted = electra.flops(preset="base", steps=1_000_000)
    for network in counted["networks"].values():
        for part, flops in network.items():
            line = next(line for line in shown.splitlines() if line.startswith(part))
            assert (format_flops(flops) if flops else "-") in line
    assert "1,000,000 updates of 256 sequences of 512 tokens, 77 of them masked" in shown
    assert f"training: {format_flops(counted['train_flops'])} FLOPs" in shown
    assert "parameters: 109.5 M of the main encoder, 9.9 M of the other modules" in shown
    cli.main(["flops", "--preset", "tiny"])
    assert "parameters: 0.27 M of the main encoder, 0.03 M of the other modules" in capsys.readouterr().out


def test_flops_are_formatted_with_three_digits() -> None:
    assert [format_flops(x) for x in (1.2944e18, 1e9, 3.679e9)] == ["1.29e18", "1.00e9", "3.68e9"]


@pytest.mark.parametrize(
    ("words", "code", "values"),
    [
        ("--preset smal", "unknown-choice", ("--preset", "smal", "tiny")),
        ("--objective bert", "unknown-choice", ("--objective", "bert", "electra")),
        ("--seq-len 600", "longer-than-model", ("--seq-len 600", "512", "small")),
        ("--seq-len 2", "out-of-range", ("--seq-len is 2", "5")),
        ("--steps 0", "out-of-range", ("--steps", "0")),
        ("--batch-size 0", "out-of-range", ("--training.batch-size", "0", "1")),
        ("base", "not-option", ("'base'", "--help")),
        ("--presets base", "unknown-option", ("--presets", "--preset?")),
    ],
)
def test_invalid_options_raise(words: str, code: str, values: tuple[str, ...]) -> None:
    fails(["flops", *words.split()], code, *values)


@pytest.mark.parametrize(
    ("words", "code", "values"),
    [
        ("3", "unknown-choice", ("3", "1, 2, 4, 8")),
        ("two", "wrong-type", ("NUMBER", "int", "two")),
        ("1 2", "extra-argument", ("'2'", "NUMBER")),
        ("", "missing-option", ("NUMBER", "electra paper-table --help")),
    ],
)
def test_invalid_paper_table_raises(words: str, code: str, values: tuple[str, ...]) -> None:
    fails(["paper-table", *words.split()], code, *values)
