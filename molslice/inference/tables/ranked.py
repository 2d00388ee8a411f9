"""Rank tables of any length: rows in, the best rows out."""

import functools
import json
from array import array
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import tee
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np

from molslice.data.molecules.conditions import Conditioned
from molslice.data.molecules.fragments import count_wildcards
from molslice.data.molecules.refusals import Refusals, failure_text
from molslice.data.molecules.tables import MoleculeTable, open_molecules
from molslice.files.atomic import reserved
from molslice.files.tables.json_lines import as_text, as_value
from molslice.files.urls import File, as_file
from molslice.inference.base import Predictor
from molslice.inference.columns import ERROR, SMILES, distinct_columns
from molslice.inference.predictions import TableRows
from molslice.inference.ranking import Ranker, Scores, check_numbers
from molslice.inference.smiles_reader import default_workers
from molslice.inference.tables.sinks import STDOUT, TABLES, open_sink
from molslice.inference.tables.table import (
    ROW_BYTES,
    Computed,
    TableReport,
    check_conditions,
    check_source,
    check_target,
    stream_rows,
)
from molslice.types import MolsliceError

SIMILARITY_BEFORE = "similarity_before"  # column of a diverse choice
ROWS_AT_ONCE = 1024  # that are read back and written


@dataclass(frozen=True, slots=True)
class RankedRow:
    """A row of the table.

    Attributes:
        file: Name of its file.
        row: Its number, from 1 after the column names.
        smiles: Its SMILES as in the table.
        cells: Its cells by column; of columns of one name the last.
        values: Its numbers by column, float32, NaN where missing.
        texts: Its texts by column.
    """

    file: str
    row: int
    smiles: str
    cells: dict[str, str]
    values: dict[str, np.float32]
    texts: dict[str, str]


@dataclass(frozen=True, slots=True)
class RankedTable:
    """The outcome of a ranking.

    Attributes:
        report: The rows that were read, and the columns that were added.
        ranked: Number of rows in the order, without the failed ones.
        outside: Number of rows that were left out because they are outside the domain.
        trained: Number of training molecules among the rows; None if they are not known.
        best: The first rows of the order, as many as were asked for.
    """

    report: TableReport
    ranked: int
    outside: int
    trained: int | None
    best: tuple[RankedRow, ...]


@dataclass(frozen=True, slots=True)
class _ScoredRows(TableRows):
    """Rows with their scores and places."""

    scores: Scores | None = None
    file: str = ""
    first: int = 1
    smiles: Sequence[str] = ()


class _Spool:
    """The rows of a table in a temporary file, with what orders them in memory: 26 bytes for each row."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._places = stream, array("q")
        self._numbers = array("d"), array("d")  # values and margins
        self._flags = array("b"), array("b")  # whether a row is a candidate, and a training molecule

    def add(self, cells: Sequence[Sequence[str]], rows: TableRows) -> None:
        """Append rows."""
        assert isinstance(rows, _ScoredRows)
        assert rows.scores is not None
        scores = rows.scores
        for kept, values in zip(self._numbers, (scores.values, scores.margins), strict=True):
            kept.extend(values.tolist())
        for kept, flags in zip(self._flags, (scores.is_candidate, scores.is_trained), strict=True):
            kept.extend(flags.tolist())
        for place, (row, (values, texts, reason)) in enumerate(zip(cells, rows, strict=True)):
            smiles = rows.smiles[place]
            partner = smiles.partner if isinstance(smiles, Conditioned) else None
            kept = [as_value(cell) for cell in row]
            record = [kept, values.tolist(), [*texts], reason, rows.file, rows.first + place, smiles, partner]
            self._places.append(self._stream.tell())
            self._stream.write(json.dumps(record).encode() + b"\n")

    def scores(self) -> Scores:
        """Return what orders the rows."""
        values, margins = (np.array(numbers) for numbers in self._numbers)
        candidates, trained = (np.array(flags, bool) for flags in self._flags)
        return Scores(values, margins, np.zeros((len(values), 0)), None, candidates, trained)

    def read(self, row: int) -> list[Any]:
        """Return the record of a row: cells, values, texts, reason, file, number, SMILES, second molecule."""
        self._stream.seek(self._places[row])
        cells, *others = json.loads(self._stream.readline())
        return [[as_text(value) for value in cells], *others]

    def read_row(self, row: int) -> str:
        """Return a row as `predict_chunks` takes it, without the values of its conditions."""
        *_, smiles, partner = self.read(row)
        return smiles if partner is None else Conditioned(smiles, (), partner)


def rank_table(
    ranker: Ranker,
    source: Sequence[File | str],
    target: File | str | None = None,
    *,
    top: int | None = None,
    diverse: int | None = None,
    listed: int = 0,
    smiles_column: str | None = None,
    delimiter: str | None = None,
    workers: int | None = None,
    strict: bool = False,
    progress: bool = True,
) -> RankedTable:
    """Rank the rows of files, and write them in order.

    The rows are predicted as in `predict_table` and wait in a temporary file, so that memory holds only what
    orders them. The columns of `Ranker.table_columns`, and `similarity_before` with `diverse`, follow the
    columns of the input. With neither `top` nor `diverse`, the rows without a prediction come last, with
    their reasons.

    Args:
        ranker: The model and the goals.
        source: Files, URLs or patterns in the formats of `open_molecules`.
        target: The file or URL to write; `-` is standard output. None writes nothing.
        top: As in `molslice.inference.ranking.rank`.
        diverse: As in `molslice.inference.ranking.rank`.
        listed: Number of rows to return.
        smiles_column: The name of the column with SMILES; None finds it.
        delimiter: The character between the cells of `source`; None finds it.
        workers: Number of worker processes, as in `predict_table`.
        strict: Whether to stop at the first row that fails.
        progress: Whether to show a bar on standard error.

    Raises:
        MolsliceError: As in `predict_table`.
        OSError: The file cannot be written. No partial file is left.
    """
    check_numbers(top, diverse)
    predictor, file = ranker.predictor, None if target is None else as_file(target)
    if file is not None:
        check_target(file, TABLES)
    with (
        reserved(None if file in (None, STDOUT) else file),
        open_molecules(
            source, smiles_column=smiles_column or predictor.smiles_column, delimiter=delimiter
        ) as table,
        TemporaryFile() as stream,
    ):
        if file is not None:
            check_source(table.paths, file)
        check_conditions(predictor, table)
        numbers, texts = ranker.table_columns(table.names)
        if diverse is not None:
            numbers += distinct_columns([SIMILARITY_BEFORE], taken=[*table.names, *numbers, *texts])
        error_column = distinct_columns([*numbers, *texts, ERROR], taken=table.names)[-1]
        report = TableReport(
            (*numbers, *texts),
            error_column,
            table.smiles_column,
            tuple(table.findings),
            fragment=predictor.fragment,
        )
        spool, compute = _Spool(stream), functools.partial(_scored_chunks, ranker, workers)
        try:
            stream_rows(predictor, table, spool.add, report, None, compute, strict, progress)
        except MolsliceError as error:
            raise error if file is None else MolsliceError(f"{error}; {file} is not written") from error
        scores = spool.scores()
        order, similarities = ranker.choose(scores, spool.read_row, top, diverse)
        written = order
        if top is None and diverse is None:
            written = np.concatenate([order, np.flatnonzero(np.isnan(scores.values))])

        def records(places: np.ndarray, first: int) -> list[list[Any]]:
            rows = [spool.read(int(row)) for row in places]
            if similarities is not None:
                for row, similarity in zip(rows, similarities[first:], strict=False):
                    row[1].append(float(similarity))
            return rows

        if file is not None:
            with open_sink(file, table.names, numbers, texts, error_column, table.schema) as sink:
                for start in range(0, len(written), ROWS_AT_ONCE):
                    rows = records(written[start : start + ROWS_AT_ONCE], start)
                    cells, values, words, reasons, *_ = zip(*rows, strict=True)
                    sink(cells, TableRows(np.array(values, np.float32), [*reasons], words))
        best = [
            RankedRow(
                name,
                number,
                smiles,
                dict(zip(table.names, cells, strict=True)),
                dict(zip(numbers, map(np.float32, values), strict=True)),
                dict(zip(texts, words, strict=True)),
            )
            for cells, values, words, _, name, number, smiles, _ in records(order[:listed], 0)
        ]
    return _outcome(ranker, report, scores, len(order), best)


def rank_list(
    ranker: Ranker,
    rows: Sequence[str],
    *,
    top: int | None = None,
    diverse: int | None = None,
    workers: int | None = None,
    strict: bool = False,
) -> RankedTable:
    """Rank rows, as `Predictor.given_rows` returns them, and return all that are in the order.

    Raises:
        MolsliceError: As in `molslice.inference.ranking.rank`, or a row fails although `strict` is set.
    """
    check_numbers(top, diverse)
    ranking = ranker.rank(rows, top, diverse, workers=workers, progress=True)
    scores, predictions, refusals = ranking.scores, ranking.predictions, Refusals()
    numbers, texts = ranker.table_columns()
    names = [*numbers, *([] if diverse is None else [SIMILARITY_BEFORE])]
    report = TableReport((*names, *texts), ERROR, SMILES, fragment=ranker.predictor.fragment)
    for number, (row, reason) in enumerate(zip(rows, predictions.errors, strict=True), 1):
        if reason is not None:
            refusals.add(reason, row, f"SMILES {number}")
            report.first_failure = report.first_failure or failure_text(f"SMILES {number}", row, reason)
    if strict and report.first_failure:
        raise MolsliceError(report.first_failure)
    report.refusals, report.rows = refusals.report(), len(rows)
    report.failed = len(rows) - predictions.errors.count(None)
    report.replaced = predictions.replaced
    report.wildcards = count_wildcards(
        [row for row, reason in zip(rows, predictions.errors, strict=True) if reason is None]
    )
    table, best = [*ranker.table_rows(predictions, scores)], []
    for place, row in enumerate(ranking.order):
        values, words, _ = table[row]
        if ranking.similarities is not None:
            values = [*values, np.float32(ranking.similarities[place])]
        best.append(
            RankedRow(
                "",
                int(row) + 1,
                str(rows[row]),
                {},
                dict(zip(names, values, strict=True)),
                dict(zip(texts, words, strict=True)),
            )
        )
    return _outcome(ranker, report, scores, len(best), best)


def _outcome(
    ranker: Ranker, report: TableReport, scores: Scores, ranked: int, best: Sequence[RankedRow]
) -> RankedTable:
    """Count the rows that are left out."""
    outside = int((~np.isnan(scores.values) & ~scores.is_candidate).sum())
    trained = int(scores.is_trained.sum()) if ranker.options.domain is not None else None
    return RankedTable(report, ranked, outside, trained, tuple(best))


def _scored_chunks(
    ranker: Ranker,
    workers: int | None,
    predictor: Predictor,
    table: MoleculeTable,
    columns: Sequence[str],
) -> Generator[Computed, None, None]:
    """Predict and score the rows of a table."""
    if workers is None:
        workers = default_workers(predictor.device, table.size // ROW_BYTES)
    chunks, to_predict = tee(table.chunks(predictor.chunk_rows, columns))
    rows = (predictor.rows_of(chunk, table.smiles_column) for chunk in to_predict)
    with closing(predictor.predict_chunks(rows, ranker.options, workers)) as predicted:
        for predictions, chunk in zip(predicted, chunks, strict=True):
            scores = ranker.score(predictions)
            plain = ranker.table_rows(predictions, scores)
            rows = _ScoredRows(
                plain.values,
                plain.errors,
                plain.texts,
                plain.replaced,
                scores,
                chunk.path.name,
                chunk.first,
                predictor.rows_of(chunk, table.smiles_column),
            )
            yield chunk, rows, table.position
