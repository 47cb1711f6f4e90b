"""`python runs/records.py`: the rows of the committed records of studies.

docs/research/results/records/STUDY-SCALE-SHARE/ has the records of finished runs, as a study writes them into its folder
trials/. Their rows are written to docs/research/results/STUDY-SCALE-SHARE.csv, with the columns of a study's results.csv.
"""

from dataclasses import replace
from pathlib import Path

from electra.studies.catalog import STUDIES
from electra.studies.reporting.results import Results, to_csv
from electra.studies.scales import SCALES
from electra.studies.trial import read_record

RESULTS = Path(__file__).parents[1] / "docs/research/results"
RECORDS = RESULTS / "records"


def gather(folder: Path) -> Results:
    """Gather the records of a folder; variants without a record have no rows."""
    name, scale_name, share = folder.name.rsplit("-", 2)
    scale = SCALES[scale_name]()
    study = STUDIES[name](scale)
    records: dict[str, dict[int, dict | None]] = {variant.name: {} for variant in study.variants}
    for file in sorted(folder.glob("*.json")):
        record = read_record(file)
        records[record["variant"]][record["seed"]] = record
    study = replace(study, budget=float(share) * study.budget)
    return Results.gather(study, scale_name, scale.tasks, records)


def main() -> None:
    """Write the rows of every folder."""
    for folder in sorted(path for path in RECORDS.iterdir() if path.is_dir()):
        (RESULTS / f"{folder.name}.csv").write_text(to_csv(gather(folder)))


if __name__ == "__main__":
    main()
