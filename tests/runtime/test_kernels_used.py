"""All commands that run an encoder use the attention kernel, unless it is disabled."""

from pathlib import Path

import pytest
from support.attention import CANNOT_COMPILE
from support.errors import notices

import electra
from electra.inference import engines
from electra.model.checkpoints import load_pretrained
from electra.model.cpu.attention import PackedAttention
from electra.presets import PRESETS
from electra.runtime.setup import RuntimeConfig
from electra.studies.compute import measure_finetuning_step, measure_step

pytestmark = pytest.mark.skipif(CANNOT_COMPILE is not None, reason=str(CANNOT_COMPILE))


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Widths of the layers whose attention the kernel computes."""
    widths: list[int] = []
    apply = PackedAttention.apply

    def record(qkv, *arguments):
        widths.append(qkv.shape[-1] // 3)
        return apply(qkv, *arguments)

    monkeypatch.setattr(PackedAttention, "apply", record)
    return widths


@pytest.mark.slow
def test_pretraining_and_evaluation_use_kernels(
    text: Path, tmp_path: Path, tiny_run: dict, computed: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "run"
    summary = electra.pretrain(str(text), out=str(out), **tiny_run)
    assert summary["hardware"].endswith(", C++ kernels")
    assert len(notices(caplog, "kernel")) == 1
    assert len(set(computed)) == 2, "the generator's and the discriminator's"
    computed.clear()
    electra.evaluate(str(out))
    assert computed


@pytest.mark.slow
@pytest.mark.parametrize("option", [{"runtime": {"kernels": False}}, {"training": {"compile": True}}])
def test_kernels_are_not_used_with_other_options(
    option: dict, text: Path, tmp_path: Path, tiny_run: dict, computed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("electra.pretraining.run.compile_parts", lambda model, device: None)
    options = tiny_run | {name: tiny_run.get(name, {}) | value for name, value in option.items()}
    summary = electra.pretrain(str(text), out=str(tmp_path / "run"), **options)
    assert not computed
    assert "kernels" not in summary["hardware"]


def test_finetuning_and_prediction_use_kernels(
    finished: Path, tmp_path: Path, computed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "table.csv"
    table.write_text("text,label\n" + "".join(f"some words {i},{'ab'[i % 2]}\n" for i in range(20)))
    for kernels in (True, False):
        out = str(tmp_path / str(kernels))
        where = {"device": "cpu", "kernels": kernels}
        options = {"train": str(table), "text": "text", "label": "label", "epochs": 1, "runtime": where}
        results = electra.finetune("table", model=str(finished), out=out, **options)
        assert bool(computed) == kernels
        assert ("C++ kernel" in results["hardware"]) == kernels
        computed.clear()
    for compiled in (True, False):
        monkeypatch.setattr(engines, "kernels_compiled", lambda compiled=compiled: compiled)
        (tmp_path / "line.txt").write_text("one line\n")
        assert len(list(electra.predict(f"{out}/seed-0", tmp_path / "line.txt"))) == 1
        assert bool(computed) == compiled, "prediction does not compile the kernels"
        computed.clear()


@pytest.mark.slow
def test_estimates_of_studies_use_kernels(finished: Path, computed: list[int]) -> None:
    measure_step(PRESETS["tiny"]())
    assert computed
    computed.clear()
    measure_finetuning_step(load_pretrained(finished / "discriminator").config, 16, 4, RuntimeConfig("cpu"))
    assert computed
