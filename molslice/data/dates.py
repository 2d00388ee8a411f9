"""Dates in the cells of a column, in the forms that people write."""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

from molslice.files.tables import is_missing
from molslice.types import MolsliceError

DAY = 86_400.0  # seconds
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NUMBER, ISO, POINTS, SLASHES, NAMES = "numbers", "ISO dates", "day.month.year", "slashes", "names of months"
DAY_FIRST, MONTH_FIRST = "day/month/year", "month/day/year"
_TIME = r"(?:[ T,]+(\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?: ?[AaPp][Mm])?))?"
_FORMS = {
    NUMBER: re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"),
    ISO: re.compile(r"(\d{4}[-/]\d{1,2}(?:[-/]\d{1,2})?)(?:[ T]+(\S+))?"),
    POINTS: re.compile(r"(\d{1,2}\. ?\d{1,2}\. ?\d{4})" + _TIME),
    SLASHES: re.compile(r"(\d{1,2}/\d{1,2}/\d{4})" + _TIME),
    NAMES: re.compile(r"(\d{1,2}[- ][A-Za-z]{3,9}\.?[- ]\d{4}|[A-Za-z]{3,9}\.? \d{1,2}, \d{4})" + _TIME),
}
_MONTH_AND_YEAR = re.compile(r"(0?[1-9]|1[0-2])\.(19|20)\d\d")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_ADVICE = "write it as 2021-03-04, or as a number that grows with time"


@dataclass(frozen=True, slots=True)
class Dates:
    """The dates of a column.

    Attributes:
        values: Days since 1970-01-01 in UTC, or the numbers of the column, float64 [n]; NaN where missing.
        form: How they are written, such as `day/month/year`.
    """

    values: np.ndarray
    form: str

    def text(self, value: float) -> str:
        """Write one of the values: a number, an ISO date, or a date with its time if that is not midnight."""
        if self.form == NUMBER:
            return f"{value:.15g}"
        moment = EPOCH + timedelta(seconds=round(value * DAY))
        text = moment.isoformat(sep=" ", timespec="minutes").removesuffix("+00:00")
        return text.removesuffix(" 00:00")


def read_dates(
    cells: Sequence[str], column: str, where: Callable[[int], str], missing: Collection[str] = ()
) -> Dates:
    """Read a column of dates that are all written in one form.

    The forms are numbers that grow with time, such as years; `2021-03-04` or `2021-03`, also with a time and
    a zone, without which it is UTC; `04.03.2021`; `4 Mar 2021` and `Mar 4, 2021`; and `3/4/2021`, if only one
    order of day and month is possible in all cells.

    Args:
        cells: The cells. Empty ones, and usual words for a missing value, are missing.
        column: Name of the column, for messages.
        where: Describes the location of a cell by its index, for messages.
        missing: More texts that are missing, in lower case.
    """
    texts = [text.strip() for text in cells]
    known = [row for row, text in enumerate(texts) if not is_missing(text) and text.lower() not in missing]
    if not known:
        raise MolsliceError(f"the column {column!r} has no dates: all cells are empty")

    def refusal(row: int, complaint: str) -> MolsliceError:
        return MolsliceError(f"{where(row)}, column {column!r}: {cells[row]!r} {complaint}")

    form = _form_of(texts[known[0]])
    for row in known:
        if (other := _form_of(texts[row])) is None:
            raise refusal(row, f"is not a date; {_ADVICE}")
        if other != form:
            raise refusal(row, f"is written in another form than {cells[known[0]]!r} in {where(known[0])}")
    assert form is not None
    if form == NUMBER and all(_MONTH_AND_YEAR.fullmatch(texts[row]) for row in known):
        raise refusal(known[0], "may be a month and a year, as all cells; write it as 2021-03")
    if form == SLASHES:
        form = _order_of_slashes([texts[row] for row in known], lambda place: refusal(known[place], ""))
    values = np.full(len(cells), np.nan)
    for row in known:
        try:
            values[row] = _value(texts[row], form)
        except (ValueError, OverflowError) as error:
            raise refusal(row, f"is not a date; {_ADVICE}") from error
    return Dates(values, form)


def _form_of(text: str) -> str | None:
    return next((form for form, pattern in _FORMS.items() if pattern.fullmatch(text)), None)


def _order_of_slashes(texts: Sequence[str], refusal: Callable[[int], MolsliceError]) -> str:
    """Find whether days or months are first; only one of them may be above 12."""
    pairs = [tuple(map(int, text.split("/")[:2])) for text in texts]
    first, second = (max(pair[place] for pair in pairs) for place in (0, 1))
    if first <= 12 and second <= 12:
        raise MolsliceError(f"{refusal(0)}may have the day or the month first, as all dates; {_ADVICE}")
    if first > 12 and second > 12:
        row = max(next(row for row, pair in enumerate(pairs) if pair[place] > 12) for place in (0, 1))
        raise MolsliceError(f"{refusal(row)}has another order of day and month than other rows; {_ADVICE}")
    return DAY_FIRST if first > 12 else MONTH_FIRST


def _value(text: str, form: str) -> float:
    if form == NUMBER:
        value = float(text)
        if not np.isfinite(value):
            raise ValueError(text)
        return value
    match = _FORMS[SLASHES if form in (DAY_FIRST, MONTH_FIRST) else form].fullmatch(text)
    assert match is not None
    date, time = match[1], match[2]
    if form == ISO:
        year, month, day = ([int(number) for number in re.split(r"[-/]", date)] + [1])[:3]
        clock = datetime.fromisoformat(f"2000-01-01T{time}") if time else datetime(2000, 1, 1)  # noqa: DTZ001
    else:
        day, month, year = _split_date(date, form)
        clock = _clock(time)
    zone = clock.tzinfo or UTC
    moment = clock.replace(year=year, month=month, day=day, tzinfo=zone)
    return (moment - EPOCH).total_seconds() / DAY


def _split_date(date: str, form: str) -> tuple[int, int, int]:
    """Return day, month and year."""
    if form == NAMES:
        words = re.findall(r"\d+|[A-Za-z]+", date)
        if words[0].isalpha():
            words[:2] = words[1::-1]
        return int(words[0]), 1 + _MONTHS.index(words[1][:3].lower()), int(words[2])
    first, second, year = map(int, re.findall(r"\d+", date))
    return (second, first, year) if form == MONTH_FIRST else (first, second, year)


def _clock(time: str | None) -> datetime:
    """Return a time of day, also one such as `2:30 PM`, on any day."""
    if time is None:
        return datetime(2000, 1, 1)  # noqa: DTZ001
    if time[-1] in "mM":
        plain = time.replace(" ", "").upper()
        form = "%I:%M:%S%p" if plain.count(":") == 2 else "%I:%M%p"
        return datetime.strptime(plain, form)  # noqa: DTZ007
    return datetime.fromisoformat(f"2000-01-01T{time.zfill(5) if time.count(':') == 1 else time.zfill(8)}")
