"""The expected time of a fit, by its rows and quality, before it begins."""

from collections.abc import Sequence

from molslice.fitting.data import FitData, FitOptions
from molslice.fitting.quality import QUALITIES
from molslice.number_text import counted

# seconds of one core for a row, measured on tables of 300 to 3,000 rows, where reading takes READING of them
READING = 0.008
EMBEDDING = 0.004
LEARNERS = {"fast": 0.01, "good": 0.05, "best": 0.05}  # for a target and a division into folds
BASELINES = 0.015  # for a target
SLOWEST, FASTEST = 20.0, 0.5  # relative to the machine of the measurement


def expected_seconds(
    rows: FitData,
    options: FitOptions,
    reading_seconds: float,
    *,
    refits: bool,
    has_encoder: bool,
    tables: Sequence[str] = (),
) -> dict[str, float]:
    """Return the expected time of each phase of a fit, in seconds, in the order of the phases.

    How long the rows took to read tells how fast the machine is at the moment.

    Args:
        rows: The rows.
        options: Options of the fit.
        reading_seconds: The time in which one core would have read the rows.
        refits: Whether the model is fitted again to all rows.
        has_encoder: Whether there are embeddings.
        tables: Names of the related tables.
    """
    count, quality = len(rows.smiles), QUALITIES[options.quality]
    speed = min(max(reading_seconds / (READING * max(count, 1)), FASTEST), SLOWEST)
    columns = sum(target_type.num_parts for target_type in rows.types)
    learners = LEARNERS[options.quality] * count * columns
    networks = 0.0
    if quality.fine_tunes and has_encoder and rows.partner is None:
        networks = _network_seconds(count, options.members)
    baselines = BASELINES * count * len(rows.names) * bool(rows.test.any())
    phases = {"embedding": EMBEDDING * count * has_encoder}
    phases |= {name: (READING + EMBEDDING) * count for name in tables}
    phases |= {"related targets": LEARNERS["fast"] * count * len(tables) / 4} if tables else {}
    phases |= {"tuning": 60.0 * options.tune / speed} if options.tune else {}
    if refits:
        phases |= {"learners (measuring)": learners + baselines, "networks (measuring)": networks}
        baselines = 0.0
    phases |= {"learners": quality.assignments * learners + baselines, "networks": networks}
    phases |= {"without related targets": quality.assignments * learners} if tables else {}
    seconds = {name: speed * value for name, value in phases.items() if value}
    total = sum(seconds.values())
    if options.minutes is not None and total > 60.0 * options.minutes:
        seconds = {name: value * 60.0 * options.minutes / total for name, value in seconds.items()}
    return seconds


def _network_seconds(rows: int, members: int) -> float:
    from molslice.fitting.networks import EPOCH_COST  # Lightning takes long to import
    from molslice.training.duration import count_epochs

    seen = rows * (members - 1)
    return EPOCH_COST * EMBEDDING * seen * count_epochs(seen // members)


def describe_seconds(seconds: float) -> str:
    """Return an expected time as text, such as `about 20 seconds` or `about 3 minutes`."""
    if seconds < 50:
        return f"about {max(5, 5 * round(seconds / 5))} seconds"
    unit, size = ("minute", 60.0) if seconds < 5400 else ("hour", 3600.0)
    number = max(1, round(seconds / size))
    return f"about {counted(number, unit)}"
