"""Adapt an encoder to a domain: pre-train on general text, continue on domain text, compare on held-out domain text.

    python examples/domain_adaptation.py GENERAL DOMAIN OUT [OPTION=VALUE ...]

GENERAL and DOMAIN are files or folders of text. Options, such as `hours=1` or `preset=small`, are those of `electra.pretrain`
for both runs; the defaults give a short demonstration. If you have an ELECTRA, leave out the first run and give the directory
of the model as `init`.
"""

import sys
from pathlib import Path

import yaml

import electra


def main(general: str, domain: str, out: str, *options: str) -> None:
    """Print the discriminator's held-out AUC on domain text before and after adaptation; `options` are NAME=VALUE."""
    settings = {"preset": "tiny", "hours": 0.05} | {
        name: yaml.safe_load(value) for name, value in (option.split("=", 1) for option in options)
    }
    if "steps" in settings:
        del settings["hours"]
    before, after = Path(out, "general"), Path(out, "adapted")
    electra.pretrain(general, out=before, **settings)
    electra.pretrain(domain, out=after, init=str(before), **settings)
    # The domain text is prepared with the tokenizer of the first run, so that both are scored on the same held-out documents.
    for name, run in (("before", before), ("after", after)):
        metrics = electra.evaluate(run, data=after / "data")
        print(f"{name} adaptation: AUC {metrics['auc']:.3f}, generator accuracy {metrics['generator_accuracy']:.1%}")


if __name__ == "__main__":
    main(*sys.argv[1:])
