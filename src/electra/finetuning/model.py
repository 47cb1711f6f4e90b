"""An encoder with the head of a task, for training and for inference."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from electra.finetuning.batching import EncodedExamples, LabeledBatch, iterate_by_length
from electra.finetuning.task import Head, Outputs
from electra.model.encoder import Encoder
from electra.model.flops import encoder_flops
from electra.runtime.setup import Runtime


class FinetunedModel(nn.Module):
    """An encoder and a head, as a `Trainable`."""

    def __init__(self, encoder: Encoder, head: nn.Module, summed_loss: bool = False) -> None:
        super().__init__()
        self.summed_loss = summed_loss
        self.encoder = encoder
        self.head = head

    def hidden(self, batch: LabeledBatch) -> Tensor:
        """Hidden states of every token, or [B, 1, H] of [CLS] alone where the head reads no other."""
        inputs = batch.inputs
        cls = inputs.input_ids.new_zeros(len(inputs.input_ids), 1) if cast(Head, self.head).only_cls else None
        return self.encoder(inputs.input_ids, inputs.token_type_ids, inputs.attention_mask, cls)

    def forward(self, batch: LabeledBatch, counts: Mapping[str, float]) -> tuple[Tensor, dict[str, Tensor]]:
        """This batch's part of the loss, a mean over `counts["examples"]` or a sum, and sums for `metrics`."""
        losses = cast(Head, self.head).loss(self.hidden(batch).float(), batch)
        examples = torch.ones_like(losses).sum()  # on the device: no host synchronization
        divisor = 1.0 if self.summed_loss else counts["examples"]
        return losses.sum() / divisor, {"loss": losses.detach().sum(), "examples": examples}

    def counts(self, batch: LabeledBatch) -> dict[str, float]:
        """The numbers of examples, and of tokens that are not padding."""
        return {"examples": float(len(batch.inputs.lengths)), "tokens": float(batch.inputs.lengths.sum())}

    def metrics(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """The mean loss."""
        return {"loss": float(sums["loss"] / sums["examples"])}

    def flops(self, batch: LabeledBatch) -> float:
        """Forward and backward of the encoder, counted as in Appendix E; heads are too small to count."""
        rows, length = batch.inputs.input_ids.shape
        return 2.0 * rows * encoder_flops(self.encoder.config, length)

    @torch.inference_mode()
    def outputs(self, examples: EncodedExamples, runtime: Runtime, batch_size: int, pad_id: int) -> Outputs:
        """The outputs of the head for every example, in their order."""
        by_row: dict[int, dict[str, np.ndarray]] = {}
        for rows, batch in iterate_by_length(examples, batch_size, pad_id):
            by_row.update(zip(rows.tolist(), self._batch_outputs(batch, runtime), strict=True))
        return [by_row[i] for i in range(len(examples))]

    def _batch_outputs(self, batch: LabeledBatch, runtime: Runtime) -> Iterator[dict[str, Any]]:
        self.eval()
        batch = batch.to(runtime.device)
        with runtime.autocast():
            hidden = self.hidden(batch)
        outputs = cast(Head, self.head).predict(hidden.float(), batch)
        arrays = {name: tensor.float().cpu().numpy() for name, tensor in outputs.items()}
        for i in range(len(hidden)):
            yield {name: np.asarray(array[i]) for name, array in arrays.items()}
