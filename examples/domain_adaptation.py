"""Adapt an encoder to a domain: pre-train on general text, continue on domain text, compare on held-out domain text.

    python examples/domain_adaptation.py GENERAL DOMAIN OUT [OPTION=VALUE ...]

GENERAL and DOMAIN are files or folders of text. Options, such as `hours=1` or `preset=small`, go to both runs; the defaults
make a short demonstration. With an existing ELECTRA, leave out the first run and give its directory as `init`.
"""

import sys
from pathlib import Path

import yaml

import electra


def main(general: str, domain: str, out: str, *words: str) -> None:
    """Print the discriminator's held-out AUC on domain text before and after adaptation."""
    options = {"preset": "tiny", "hours": 0.05} | {
        name: yaml.safe_load(value) for name, value in (word.split("=", 1) for word in words)
    }
    if "steps" in options:
        del options["hours"]
    before, after = Path(out, "general"), Path(out, "adapted")
    electra.pretrain(general, out=before, **options)
    electra.pretrain(domain, out=after, init=str(before), **options)
    # The run on domain text has prepared it with the tokenizer of the first: both are scored on the same held-out documents.
    for name, run in (("before", before), ("after", after)):
        metrics = electra.evaluate(run, data=after / "data")
        print(f"{name} adaptation: AUC {metrics['auc']:.3f}, generator accuracy {metrics['generator_accuracy']:.1%}")


if __name__ == "__main__":
    main(*sys.argv[1:])
