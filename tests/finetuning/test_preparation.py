"""Preparation that the runs of all seeds share."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from support.errors import check_message, notices
from support.toy_tasks import finetune_settings, save_model, write_glue

from electra.finetuning.classification import task
from electra.finetuning.run import finetune


@pytest.mark.slow
def test_common_inputs_are_read_once_for_all_seeds(tmp_path, monkeypatch, caplog) -> None:
    model, data = save_model(tmp_path / "model"), write_glue(tmp_path / "glue")
    (data / "MNLI" / "dev_mismatched.tsv").unlink()
    with (data / "MNLI" / "train.tsv").open("a") as file:
        file.write("half a row\n")
    encoded = []
    encode = task.encode_pairs
    monkeypatch.setattr(task, "encode_pairs", lambda *given: encoded.append(given) or encode(*given))
    settings = finetune_settings(model, "mnli", data=str(data), epochs=1.0, max_length=8, skip_bad_rows=True)
    finetune(settings, tmp_path / "out", seeds=3)
    assert len(encoded) == 4, "train, dev, test and AX"
    [skipped] = notices(caplog, "skipped-rows")
    check_message(skipped, "train.tsv", 1)
    truncated = notices(caplog, "truncated")
    for split in ("train", "dev"):
        [message] = (each for each in truncated if split in each)
        check_message(message, 32)
    [missing] = notices(caplog, "no-mismatched-dev")
    check_message(missing, "MNLI/dev_mismatched.tsv")
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert {skipped, *truncated, missing} <= set(warnings)
    assert len(warnings) == len(set(warnings))
    finetune(replace(settings, seed=2), tmp_path / "alone")
    one, other = (load_file(tmp_path / each / "seed-2/model/model.safetensors") for each in ("out", "alone"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    encoded.clear()
    finetune(settings, tmp_path / "out", seeds=3)
    assert not encoded, "all seeds are finished"
