"""The variants and budgets of the studies, compared with the paper."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import records
import yaml
from support.errors import raises
from support.places import ROOT

from electra.config.files import flatten, to_yaml
from electra.errors import UsageError
from electra.pretraining.config import PretrainConfig
from electra.studies.catalog import STUDIES
from electra.studies.compute import compute_step_flops
from electra.studies.paper import glue_scores
from electra.studies.reporting.results import to_csv
from electra.studies.run import select_variants
from electra.studies.scales import SCALES
from electra.studies.study import Study, set_learning_rates
from electra.studies.widths import scale_width


def study(name: str, scale: str = "small") -> Study:
    return STUDIES[name](SCALES[scale]())


def differences(config: PretrainConfig, base: PretrainConfig) -> dict[str, Any]:
    ours, theirs = (flatten(yaml.safe_load(to_yaml(each))) for each in (config, base))
    return {name: value for name, value in ours.items() if value != theirs[name]}


@pytest.mark.slow
@pytest.mark.parametrize("scale", [scale for scale in SCALES if scale != "toy"])
@pytest.mark.parametrize("name", [name for name in STUDIES if name != "toy"])
def test_every_study_is_valid_at_every_scale(name: str, scale: str) -> None:
    grid = study(name, scale)
    assert grid.name == name
    names = [variant.name for variant in grid.variants]
    assert len(set(names)) == len(names) > 1
    assert all("/" not in each and " " not in each for each in names), "they are directories"
    assert grid.budget > 0
    for variant in grid.variants:
        config = grid.build_config(variant)
        given = [config.steps, config.flops]
        assert given.count(None) == 1
        if variant.share == 0:
            assert config.steps == 1
        elif grid.equal == "flops":
            assert config.flops == variant.share * grid.budget
        else:
            assert config.steps == round(grid.budget)
        if grid.axis is not None and not grid.axis.flops:
            assert variant.x is not None
            assert variant.line
        if grid.axis is not None and grid.axis.ticks:
            assert variant.x in range(len(grid.axis.ticks))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in STUDIES if name != "toy"])
def test_length_warmup_has_the_same_share_of_every_run(name: str) -> None:
    grid = study(name, "mini")
    scale = SCALES["mini"]().config
    share = scale.length_warmup.steps / scale.steps
    assert 0 < share < 1
    for variant in grid.variants:
        config = grid.build_config(variant)
        if variant.share:
            updates = config.steps or config.flops / compute_step_flops(config)
            assert config.length_warmup.steps == pytest.approx(share * updates, abs=1), variant.name


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["base", "large"])
def test_objectives_differ_only_in_their_objective(scale: str) -> None:
    """The masked share, 25 % at large, is equal too: "the same hyperparameters" (section 3.4)."""
    base = SCALES[scale]().config
    rows = {variant.name: differences(variant.config, base) for variant in study("objectives", scale).variants}
    assert rows.pop("untrained") == rows.pop("electra") == {}
    assert rows.pop("electra-unigram") == {"generator.kind": "unigram"}
    assert rows == {name: {"objective": name} for name in rows}
    assert set(rows) == {"all-tokens-mlm", "replace-mlm", "electra-15", "electra-other-15", "mlm"}


def test_loss_weight_applies_to_discriminators_only() -> None:
    weights = {variant.name: variant.config.loss_weight for variant in study("objectives", "tiny").variants}
    assert weights["electra"] == weights["electra-15"] == 5.0
    assert weights["replace-mlm"] is weights["all-tokens-mlm"] is weights["mlm"] is None


def test_budgets_equal_the_papers() -> None:
    assert study("objectives", "base").budget == pytest.approx(6.4e19, rel=0.01), "Table 1"
    assert study("efficiency").budget == pytest.approx(1.29e18, rel=0.01), "Table 1, with the released generator"
    for name in ("generator-size", "tying"):
        assert (study(name, "base").equal, study(name, "base").budget) == ("steps", 500_000), "section 3.2"


def test_warmup_equals_the_papers() -> None:
    config = study("objectives", "base").build_config(study("objectives", "base").variants[0])
    assert config.schedule.warmup(config.steps) == pytest.approx(10_000 / 766_000)
    grid = study("generator-size", "base")
    config = grid.build_config(grid.variants[0])
    assert config.schedule.warmup(config.steps) * config.steps == pytest.approx(10_000), "and at equal steps"


SMALL = [74.1, 76.0, 77.7, 79.0, 79.9]


@pytest.mark.slow
def test_efficiency_has_the_scores_of_table_1() -> None:
    grid = study("efficiency")
    electra = [variant for variant in grid.variants if variant.line == "ELECTRA"]
    assert [variant.share for variant in electra] == [0.0625, 0.125, 0.25, 0.5, 1.0]
    assert [variant.published for variant in electra] == SMALL
    bert = {variant.share: variant for variant in grid.variants if variant.line == "BERT"}
    assert set(bert) == {variant.share for variant in electra}
    assert bert[1.0].published == 75.1
    assert all(variant.config.objective == "mlm" for variant in bert.values())
    for scale, numbers in (("base", {85.1, 82.2}), ("large", {89.5}), ("base++", set())):
        found = {variant.published for variant in study("efficiency", scale).variants}
        assert found - {None} == numbers, "of that size, or none"
    assert {variant.published for variant in study("efficiency", "tiny").variants} - {None} == {*SMALL, 75.1}


@pytest.mark.slow
def test_model_sizes_are_those_of_figure_4_at_equal_compute() -> None:
    grid = study("model-size", "base")
    assert sorted({variant.x for variant in grid.variants}) == [128, 256, 384, 512, 768]
    pairs: dict[float, set[float]] = {}
    for variant in grid.variants:
        assert variant.config.model.hidden_size == variant.x
        assert variant.config.model.hidden_size // variant.config.model.num_heads == 64
        pairs.setdefault(variant.x, set()).add(variant.share)
    assert all(len(shares) == 1 for shares in pairs.values())
    assert pairs[768] == {1.0}
    (small,) = pairs[256]
    assert small < 0.5


def test_initializer_range_scales_with_the_width() -> None:
    tiny, base = SCALES["tiny"]().config, SCALES["base"]().config
    width = tiny.model.hidden_size
    assert scale_width(tiny, width // 4).model.initializer_range == pytest.approx(2 * tiny.model.initializer_range)
    assert scale_width(base, 128).model.initializer_range == base.model.initializer_range == 0.02
    assert differences(scale_width(tiny, width), tiny) == {}


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["tiny", "mini", "base"])
def test_generator_initializer_range_scales_with_the_width(scale: str) -> None:
    """Without scaling, other widths would be a disadvantage for ELECTRA only."""
    grid, reference = study("model-size", scale), SCALES[scale]().config
    fitted = reference.generator.initializer_range
    for variant in grid.variants:
        model, kernels = variant.config.model, variant.config.generator.initializer_range
        if fitted is None:
            assert kernels is None
        else:
            assert kernels == pytest.approx(fitted * (reference.model.hidden_size / model.hidden_size) ** 0.5)


@pytest.mark.slow
def test_generator_sizes_of_figure_3() -> None:
    grid = study("generator-size", "base")
    assert grid.axis is not None
    assert grid.axis.ticks[:2] == ("uniform", "unigram")
    kinds = {variant.name: variant.config.generator for variant in grid.variants}
    assert kinds["d768-gunigram"].kind == "unigram"
    assert kinds["d768-g256"].size == pytest.approx(1 / 3)
    assert kinds["d256-g512"].size == 2.0
    assert kinds["d768-g256"].initializer_range == 0.02
    tiny = {variant.name: variant.config for variant in study("generator-size", "tiny").variants}
    kernels = [tiny[f"d64-g{hidden}"].generator.initializer_range for hidden in (16, 64, 128)]
    assert kernels == pytest.approx([0.24, 0.12, 0.12 / 2**0.5]), "scaled to the generator's width"
    costs = {
        variant.name: compute_step_flops(variant.config) for variant in grid.variants if variant.line.endswith("256")
    }
    assert costs["d256-gunigram"] < costs["d256-g64"] < costs["d256-g256"] < costs["d256-g768"]


@pytest.mark.slow
def test_variants_of_training_algorithms_tying_and_negative_results() -> None:
    base = SCALES["base"]().config
    rows = {
        variant.name: differences(variant.config, base) for variant in study("training-algorithms", "base").variants
    }
    assert rows["two-stage-1"] == {"procedure": "two-stage", "generator.size": 1.0}, "the sizes must be the same"
    assert rows["two-stage-scratch-0.5"] == {"procedure": "two-stage-scratch", "generator.size": 1.0}
    assert rows["adversarial-0.25"] == {"generator.training": "adversarial"}
    tying = {variant.name: differences(variant.config, base) for variant in study("tying", "base").variants}
    assert tying["all"] == {"generator.size": 1.0, "generator.tying": "all"}
    assert tying["embeddings"] == {"generator.size": 1.0}
    negative = {
        variant.name: differences(variant.config, base) for variant in study("negative-results", "base").variants
    }
    assert negative["mlm-rare"] == {"objective": "mlm", "masking.strategy": "rare"}
    assert negative["mlm-hard"] == {"objective": "mlm", "masking.strategy": "hard"}
    assert negative["temperature-2"] == {"generator.temperature": 2.0}
    assert negative["never-original"] == {"generator.exclude_original_token": True}
    assert negative["contrast"] == {"contrast.weight": 1.0}


def test_learning_rate_search_is_equal_for_electra_and_bert() -> None:
    rates: dict[str, list[float]] = {}
    for variant in study("learning-rate").variants:
        rates.setdefault(variant.line, []).append(variant.config.optimizer.learning_rate)
    assert rates["ELECTRA"] == rates["BERT"] == [1e-4, 2e-4, 3e-4, 5e-4]


def published_points() -> Iterator[tuple[float, float]]:
    for _, points in glue_scores.FIGURE_1.lines:
        yield from points


def test_published_scores_equal_the_papers() -> None:
    assert list(glue_scores.OBJECTIVES.values()) == [85.0, 84.3, 82.4, 82.4, 82.2]
    assert list(glue_scores.TYING.values()) == [83.6, 84.3, 84.4]
    assert {(1.4e18, 79.9), (1.4e18, 75.1), (6.4e19, 85.1), (6.4e19, 82.2), (3.1e21, 89.5)} <= set(published_points())


def test_variants_are_selected_by_name() -> None:
    grid = study("tying")
    assert select_variants(grid, ()) == grid.variants
    assert [variant.name for variant in select_variants(grid, ("all", "none", "all"))] == ["all", "none"]
    with raises(UsageError, "unknown-variant", "tying", "'some'", "none, embeddings, all"):
        select_variants(grid, ("some",))


def test_electras_rate_applies_to_objectives_with_a_generator() -> None:
    def rates(**given: float) -> dict[str, float]:
        found = set_learning_rates(
            study("objectives", "mini"), {name.replace("_", "-"): rate for name, rate in given.items()}
        )
        return {variant.name: variant.config.optimizer.learning_rate for variant in found.variants}

    own = SCALES["mini"]().config.optimizer.learning_rate
    assert set(rates(mlm=5e-4).values()) == {own, 5e-4}
    both = rates(electra=2e-3, mlm=5e-4)
    assert both.pop("mlm") == 5e-4
    assert set(both.values()) == {2e-3}
    assert rates(electra=2e-3, replace_mlm=3e-3)["replace-mlm"] == 3e-3


def test_queue_runs_every_element_once_and_names_variants_that_exist() -> None:
    queue: dict[str, list[str]] = {}
    for line in re.findall(r"^study (.*)$", (ROOT / "runs/queue.sh").read_text(), re.MULTILINE):
        study, scale, share, _, _, *names = line.split()
        queue.setdefault(f"{study} {scale} {share}", []).extend(names)
        assert {*names} <= {variant.name for variant in STUDIES[study](SCALES[scale]()).variants}
    variants = [variant.name for variant in STUDIES["elements"](SCALES["tiny"]()).variants]
    assert sorted(queue["elements tiny 0.25"]) == sorted(variants)


def test_committed_rows_are_those_of_the_committed_records() -> None:
    folders = [path for path in records.RECORDS.iterdir() if path.is_dir()]
    assert folders
    for folder in folders:
        assert (records.RESULTS / f"{folder.name}.csv").read_text() == to_csv(records.gather(folder))
