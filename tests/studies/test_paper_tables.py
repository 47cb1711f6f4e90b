"""The paper's tables of FLOPs, number by number."""

import math

import pytest

import electra
from electra import cli
from electra.studies.paper.computed_tables import agrees, compute_train_flops, paper_table
from electra.studies.paper.printed_tables import MODELS, NOT_COVERED, TABLES

# Output of the original script, truncated to four digits (google-research/electra, flops_computation.py).
ORIGINAL = {
    "GPT": 3.969e19,
    "BERT-Small": 1.419e18,
    "ELECTRA-Small": 1.294e18,
    "ELECTRA-Base": 6.425e19,
    "ELECTRA-400K": 7.118e20,
    "ELECTRA-1.75M": 3.114e21,
}

# The numbers that do not agree to two digits; the table gives a reason for each.
DIFFERENT = {
    1: {"GPT": {"infer_multiple"}}
    | {f"ELECTRA-Small{share}": {"train", "multiple"} for share in
       ("", ", 50% trained", ", 25% trained", ", 12.5% trained", ", 6.25% trained")},
    2: {},
    4: {"SpanBERT": {"train", "multiple"}},
    8: {
        "GPT": {"multiple"},
        "SpanBERT": {"train", "multiple"},
        "ELECTRA-Small": {"train", "multiple"},
        "ELECTRA-Small++": {"train", "multiple"},
        "ELECTRA-Small++, generator 1": {"train", "multiple"},
        "ELECTRA-Base++": {"train", "multiple"},
        "ELECTRA-1.75M": {"parameters"},
    },
}  # fmt: skip


@pytest.mark.parametrize("model", ORIGINAL)
def test_flops_equal_the_original_script(model: str) -> None:
    digit = 10 ** (math.floor(math.log10(ORIGINAL[model])) - 3)
    assert ORIGINAL[model] <= compute_train_flops(MODELS[model]) * (1 + 1e-12) < ORIGINAL[model] + digit


@pytest.mark.slow
@pytest.mark.parametrize("number", TABLES)
def test_every_number_agrees_or_has_a_reason(number: int) -> None:
    different = {}
    for row in paper_table(number)["rows"]:
        states = {name: figure["agrees"] for name, figure in row["figures"].items()}
        if wrong := {name for name, same in states.items() if same is False}:
            different[row["model"]] = wrong
        assert bool(row["why"]) == any(same is not True for same in states.values()), row["model"]
        covered = row["figures"]["train"]["computed"] is not None
        assert covered == (row["model"] not in NOT_COVERED)
    assert different == DIFFERENT[number]


def test_every_model_is_in_a_table() -> None:
    named = {row.model for table in TABLES.values() for row in table.rows}
    assert named == set(MODELS) | set(NOT_COVERED)
    assert not set(MODELS) & set(NOT_COVERED)


def test_printed_speedups_match_a_generator_of_half_the_size() -> None:
    """The reason for ELECTRA-Small's printed 1.4e18: all printed digits match, unlike with BERT-Small's 1.42e18."""
    base, half, bert = (
        compute_train_flops(MODELS[name]) for name in ("BERT-Base", "ELECTRA-Small, generator 1/2", "BERT-Small")
    )
    assert [round(base / (share * half)) for share in (1, 1 / 2, 1 / 4, 1 / 8, 1 / 16)] == [45, 90, 181, 361, 722]
    assert [round(base / (share * bert)) for share in (1, 1 / 2, 1 / 4, 1 / 8, 1 / 16)] != [45, 90, 181, 361, 722]
    assert f"{half:.1e}" == f"{bert:.1e}" == "1.4e+18"


@pytest.mark.parametrize(
    ("computed", "printed", "same"),
    [
        (6.43e19, "6.4e19", True),
        (6.46e19, "6.4e19", False),
        (3.355e20, "3.3e20", False),
        (1.29e18, "1.4e18", False),
        (109.48e6, "110M", True),
        (335.1e6, "335M", True),
        (335.1e6, "330M", False),
        (13.55e6, "14M", True),
        (7.78, "8x", True),
        (0.643, "1x", False),
        (0.9993, "1x", True),
        (0.0903, "0.09x", True),
        (0.896, "0.90x", True),
        (0.939, "0.97x", False),
        (2186, "2200x", True),
        (2140, "2200x", False),
    ],
)
def test_numbers_agree_to_two_digits(computed: float | int, printed: str, same: bool) -> None:
    assert agrees(computed, printed) is same


@pytest.mark.slow
def test_printed_output(capsys: pytest.CaptureFixture) -> None:
    cli.main(["paper-table", "8"])
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "Table 8: GLUE test set; multiples of ELECTRA-Small, generator 1/2"
    (line,) = (line for line in shown if line.startswith("BERT-Large"))
    assert line.split() == ["BERT-Large", *["1.92e20", "≈", "1.9e20", "135x", "≈", "135x", "335.2M", "≈", "335M"]]
    (line,) = (line for line in shown if line.startswith("ELECTRA-Small  "))
    assert "1.29e18 ≠ 1.4e18" in line
    (line,) = (line for line in shown if line.startswith("TinyBERT  "))
    assert line.split() == ["TinyBERT", *["-", "|", "6.4e19+", "-", "|", "45x+", "-", "|", "14.5M"]]
    for row in electra.paper_table(8)["rows"]:
        if row["why"]:
            assert sum(row["why"] in line for line in shown) == 1, "each reason is given once"
